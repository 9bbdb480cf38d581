// Trained vocabularies: the most frequent pairs, the same in every run, in a file that is read again.
#include "text/bpe_training.hpp"

#include <gtest/gtest.h>

#include <map>

#include "io/file.hpp"
#include "mhla/parallel.hpp"
#include "support/expect_error.hpp"
#include "support/small_tokenizers.hpp"
#include "support/temporary_folder.hpp"
#include "text/bpe_files.hpp"
#include "text/byte_letters.hpp"
#include "text/known_tokenizers.hpp"
#include "text/pre_tokens.hpp"

namespace mhla::text {
namespace {

using mhla::testing::TemporaryFolder;

WordCounts counts_of(std::string_view text) {
  WordCounts counts;
  counts.add({&text, 1});
  return counts;
}

std::vector<std::string> merged_pieces(const BpeModel& model) {
  return {model.pieces.begin() + 256, model.pieces.end() - 1};
}

// By the definition: all pairs counted anew for every merge.
std::vector<std::string> merged_by_definition(std::string_view text, std::int64_t merges) {
  std::map<std::string, Token> ids;
  for (const std::uint8_t byte : bytes_in_order())
    ids.emplace(std::string(1, static_cast<char>(byte)), std::ssize(ids));
  std::vector<std::vector<std::string>> words;
  while (!text.empty()) {
    const std::size_t size = first_word(text);
    words.emplace_back();
    for (const char byte : text.substr(0, size)) words.back().emplace_back(1, byte);
    text.remove_prefix(size);
  }
  std::vector<std::string> pieces;
  while (std::ssize(pieces) < merges) {
    std::map<std::pair<Token, Token>, std::int64_t> counts;
    std::map<std::pair<Token, Token>, std::pair<std::string, std::string>> spelling;
    for (const auto& word : words)
      for (std::size_t i = 0; i + 1 < word.size(); ++i) {
        const std::pair pair{ids[word[i]], ids[word[i + 1]]};
        ++counts[pair];
        spelling[pair] = {word[i], word[i + 1]};
      }
    auto best = counts.begin();
    for (auto each = counts.begin(); each != counts.end(); ++each)
      if (each->second > best->second) best = each;
    if (counts.empty() || best->second < 2) break;
    const auto [left, right] = spelling[best->first];
    if (ids.emplace(left + right, std::ssize(ids)).second) pieces.push_back(left + right);
    for (auto& word : words)
      for (std::size_t i = 0; i + 1 < word.size(); ++i)
        if (word[i] == left && word[i + 1] == right) {
          word[i] += right;
          word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
  }
  return pieces;
}

std::string small_text() {
  return "the theme of the thesis is that these three things are the same: aaaa aaaaa aaa, banana bananas anna, "
         "nanana! The caf\u00E9s of the caf\u00E9 \u65E5\u672C\u8A9E \u65E5\u672C 1999 2999 1999, abcabc abc bcab "
         "bcbc\n";
}

TEST(BpeTraining, MergesAreThoseOfTheDefinition) {
  const BpeModel model = train_bpe(counts_of(small_text()), 257 + 30);
  EXPECT_EQ(merged_pieces(model), merged_by_definition(small_text(), 30));
  EXPECT_EQ(model.pieces.size(), 287U);
  EXPECT_EQ(model.special.at(0).token, 286);
}

TEST(BpeTraining, EndsWhereNoPairAppearsTwice) {
  const BpeModel model = train_bpe(counts_of("abab cd"), 1000);
  EXPECT_EQ(merged_pieces(model), (std::vector<std::string>{"ab"}));
  EXPECT_EQ(train_bpe(counts_of(""), 300).pieces.size(), 257U);
  EXPECT_EQ(train_bpe(counts_of("abab"), 257).pieces.size(), 257U);
}

TEST(BpeTraining, TheSameOnAnyNumberOfThreads) {
  std::string text;
  while (text.size() < 2'500'000) text += small_text() + std::to_string(text.size() * 7919 % 100003) + " ";
  const int before = default_parallel().threads;
  std::vector<BpeModel> models;
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    models.push_back(train_bpe(counts_of(text), 600));
  }
  set_num_threads(before);
  EXPECT_EQ(models[0].pieces, models[1].pieces);
  EXPECT_EQ(models[0].merges, models[1].merges);
  EXPECT_EQ(models[0].pieces.size(), 600U);
}

TEST(BpeTraining, EncodingMergesAsTrainingDid) {
  const ByteBpe tokenizer(train_bpe(counts_of(small_text()), 400), "trained");
  EXPECT_EQ(tokenizer.encode(" the").size(), 1U);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(small_text())), small_text());
  EXPECT_LT(tokenizer.encode(small_text()).size(), small_text().size() / 2);
}

TEST(BpeTraining, AStoredVocabularyIsTheSame) {
  const TemporaryFolder folder;
  const BpeModel model = train_bpe(counts_of(small_text()), 280);
  write_tokenizer_json(folder / "tokenizer.json", model);
  const auto stored = open_tokenizer(folder.path());
  const ByteBpe trained(model, "trained");
  EXPECT_EQ(stored->fingerprint(), trained.fingerprint());
  EXPECT_EQ(stored->encode(small_text()), trained.encode(small_text()));
  EXPECT_EQ(stored->special().begin, 279);
  write_tokenizer_json(folder / "again.json", model);
  EXPECT_EQ(io::read_file(folder / "again.json"), io::read_file(folder / "tokenizer.json"));
}

// The files of a tokenizer may be of either kind, packed or not.
TEST(BpeTraining, TheFingerprintIsThatOfTheTokensNotOfTheFiles) {
  const TemporaryFolder folder;
  io::write_file(folder / "tokenizer.json", mhla::testing::small_tokenizer_json());
  io::write_file(folder / "gpt2/encoder.json", mhla::testing::small_vocabulary());
  io::write_file(folder / "gpt2/vocab.bpe", mhla::testing::small_merges());
  io::write_file(folder / "other/vocab.json", mhla::testing::small_vocabulary());
  io::write_file(folder / "other/merges.txt", "t h\r\nth e\r\n");
  const auto whole = open_tokenizer(folder.path()), pair = open_tokenizer(folder / "gpt2");
  EXPECT_EQ(whole->fingerprint(), pair->fingerprint());
  EXPECT_EQ(pair->special().end, 259);
  EXPECT_EQ(whole->encode("the th"), (std::vector<Token>{257, 258}));
  EXPECT_NE(open_tokenizer(folder / "other")->fingerprint(), pair->fingerprint());
}

TEST(BpeTraining, ImpossibleSizesAreRefused) {
  expect_error([] { train_bpe(WordCounts{}, 256); }, {"size is 256", "257"});
}

}  // namespace
}  // namespace mhla::text
