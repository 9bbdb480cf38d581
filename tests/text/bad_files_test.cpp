// Files that are no tokenizers are refused: by the name of the file, what is wrong, and why.
#include <gtest/gtest.h>

#include <functional>

#include "io/file.hpp"
#include "support/expect_error.hpp"
#include "support/image_files.hpp"
#include "support/small_tokenizers.hpp"
#include "support/temporary_folder.hpp"
#include "text/tokenizer.hpp"

namespace mhla::text {
namespace {

using mhla::testing::small_merges, mhla::testing::small_sentence_piece, mhla::testing::small_tokenizer_json,
    mhla::testing::small_vocabulary;

std::string replaced(std::string text, std::string_view what, std::string_view by) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

struct BadTokenizer {
  const char* name;
  std::string json;
  const char* reason;

  friend std::ostream& operator<<(std::ostream& stream, const BadTokenizer& file) { return stream << file.name; }
};

class BadTokenizerJson : public ::testing::TestWithParam<BadTokenizer> {};

TEST_P(BadTokenizerJson, IsRefusedWithAReason) {
  const mhla::testing::TemporaryFolder folder;
  io::write_file(folder / "tokenizer.json", GetParam().json);
  expect_error([&] { open_tokenizer(folder.path()); }, {"tokenizer.json: ", GetParam().reason});
}

const std::string kGood = small_tokenizer_json();
std::string with(std::string_view what, std::string_view by) { return replaced(kGood, what, by); }

INSTANTIATE_TEST_SUITE_P(
    Table, BadTokenizerJson,
    ::testing::Values(
        BadTokenizer{"Empty", "", "no tokenizer"}, BadTokenizer{"SomethingElse", "\x89PNG", "no tokenizer"},
        BadTokenizer{"Truncated", kGood.substr(0, kGood.size() / 2), "not valid JSON"},
        BadTokenizer{"Deep", "{\"model\": " + std::string(100000, '['), "nested deeper"},
        BadTokenizer{"NotUtf8", with("\"the\": 257", "\"th\xFF\": 257"), "not valid JSON"},
        BadTokenizer{"AnotherModel", with(R"("type": "BPE")", R"("type": "Unigram")"), "model.type is \"Unigram\""},
        BadTokenizer{"NoObject", R"({"model": [1]})", "pre_tokenizer is missing"},
        BadTokenizer{"NoPreTokenizer", with("pre_tokenizer", "other"), "pre_tokenizer is missing"},
        BadTokenizer{"OtherWords", with("\"ByteLevel\", \"add", "\"Metaspace\", \"add"), "pre_tokenizer.type is"},
        BadTokenizer{"ASpaceInFront", with("\"add_prefix_space\": false", "\"add_prefix_space\": true"),
                     "pre_tokenizer.add_prefix_space is true; only false is read"},
        BadTokenizer{"ANormalizer", with("\"normalizer\": null", R"("normalizer": {"type": "NFC"})"), "normalizer is"},
        BadTokenizer{"NoVocabulary", with("\"vocab\"", "\"words\""), "model.vocab is missing"},
        BadTokenizer{"VocabularyOfAnotherKind", R"({"pre_tokenizer": {"type": "ByteLevel"},
                     "model": {"type": "BPE", "vocab": [1, 2], "merges": []}})",
                     "the vocabulary must be an object"},
        BadTokenizer{"IdOutOfRange", with("\"th\": 256", "\"th\": 600"), "the id of \"th\" is 600; 260 tokens"},
        BadTokenizer{"NegativeId", with("\"th\": 256", "\"th\": -1"), "the id of \"th\" is \"-1\""},
        BadTokenizer{"HugeId", with("\"th\": 256", "\"th\": 1e99"), "the id of \"th\" is \"1e+99\""},
        BadTokenizer{"IdOfAnotherKind", with("\"th\": 256", "\"th\": \"256\""), "must be an integer"},
        BadTokenizer{"IdTwice", with("\"th\": 256", "\"th\": 257"), "the id 257 belongs to both \"th\" and \"the\""},
        BadTokenizer{"TokenTwice", with("\"th\": 256", "\"the\": 256"), "key \"the\" appears twice"},
        BadTokenizer{"NoSpelling", with("\"th\": 256", "\"\u65E5\": 256"), "has no token \"th\""},
        BadTokenizer{"NoSpellingAndNoMerge", with("\"\u0120th\": 258", "\"\u65E5\": 258"), "has no token \"\u0120th\""},
        BadTokenizer{"MergeOfAMissingToken", with("\"t h\"", "\"t hx\""), "merge 0 makes \"thx\""},
        BadTokenizer{"MergeToAMissingToken", with("\"t h\"", "\"x h\""),
                     "merge 0 makes \"xh\"; the vocabulary has no token \"xh\""},
        BadTokenizer{"MergeTwice", with("\"th e\"", "\"t h\""), "merge 1 (\"t\" \"h\") appears twice"},
        BadTokenizer{"MergeOfOne", with("\"t h\"", "\"th\""), "merge 0 is \"th\""},
        BadTokenizer{"MergeOfThree", with("\"t h\"", "\"t h e\""), "merge 0 is \"t h e\""},
        BadTokenizer{"MergeOfAnotherKind", with("\"t h\"", "7"), "model.merges: each must be"},
        BadTokenizer{"MergesOfAnotherKind", with("\"merges\": [", "\"merges\": 3, \"x\": ["), "model.merges must be"},
        BadTokenizer{"AByteLess", with("\"!\": 0", "\"hh\": 0"), "no token stands for the byte 0x21"},
        BadTokenizer{"SpecialWithAnotherId", with("{\"id\": 259", "{\"id\": 258"),
                     "the special token \"<|endoftext|>\" has the id 258, and 259 in the vocabulary"},
        BadTokenizer{"SpecialThatMergesUse",
                     with("\"id\": 259, \"content\": \"<|endoftext|>\"", "\"id\": 256, \"content\": \"th\""),
                     "merges use the special token \"th\""},
        BadTokenizer{"AddedButNotSpecial", with("\"special\": true", "\"special\": false"), "special is false"},
        BadTokenizer{"AddedWithoutContent", with("\"content\": \"<|endoftext|>\", ", ""), "content is missing"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(BadTokenizerFile, ATokenThatIsNoSpellingOfBytesIsNamed) {
  const mhla::testing::TemporaryFolder folder;
  const std::string more = replaced(small_vocabulary(), "\"<|endoftext|>\": 259", "\"\u65E5\": 259");
  io::write_file(folder / "encoder.json", more);
  io::write_file(folder / "vocab.bpe", small_merges());
  expect_error([&] { open_tokenizer(folder.path()); }, {"encoder.json: the token \"\u65E5\" is no spelling of bytes"});
}

TEST(BadTokenizerFile, MergesAreRefusedByTheirFile) {
  const mhla::testing::TemporaryFolder folder;
  io::write_file(folder / "encoder.json", small_vocabulary());
  expect_error([&] { open_tokenizer(folder.path()); }, {"encoder.json: a vocabulary without its merges", "vocab.bpe"});
  for (const auto& [merges, reason] : {std::pair<std::string, const char*>{"t h\nth", "merge 1 is \"th\""},
                                       {"t h\nt h\n", "merge 1 (\"t\" \"h\") appears twice"},
                                       {"t \xFF\n", "has no token \"\\xff\""},
                                       {std::string(100, 'a') + " b", "has no token"}}) {
    io::write_file(folder / "vocab.bpe", merges);
    expect_error([&] { open_tokenizer(folder.path()); }, {"vocab.bpe: ", reason});
  }
  io::write_file(folder / "words.json", small_vocabulary());
  expect_error([&] { open_tokenizer(folder / "words.json"); }, {"words.json: a vocabulary alone"});
}

TEST(BadTokenizerFile, SentencePieceModelsAreRefused) {
  const mhla::testing::TemporaryFolder folder;
  const std::string good = small_sentence_piece();
  for (const std::string& model :
       {std::string("\n"), std::string("\nxxxx"), good.substr(0, good.size() / 2 + 3), good.substr(0, 40),
        good + "\x0a\xff\xff", good + good, small_sentence_piece({.one_byte = "<0xZZ>"})}) {
    io::write_file(folder / "a.model", model);
    expect_error([&] { open_tokenizer(folder / "a.model"); }, {"a.model: "});
  }
}

// The library would follow it out of its memory.
TEST(BadTokenizerFile, ANormalizationMapThatLeavesItselfIsRefused) {
  using mhla::testing::normalization_map, mhla::testing::small_map, mhla::testing::small_trie;
  const auto read = [](const std::string& map) {
    const std::string model = small_sentence_piece({.map = map});
    return read_tokenizer(std::as_bytes(std::span(model)), "x.model");
  };
  const auto good = read(small_map());
  EXPECT_EQ(good->decode(good->encode("th x")), "teh x");
  const std::string texts("\0te\0", 4);
  const auto changed = [&](std::size_t at, std::uint32_t unit) {
    auto units = small_trie();
    units[at] = unit;
    return normalization_map(units, texts);
  };
  for (const std::string& map :
       {changed(0, 0x200U << 10U), changed(0, 0x3FFFFFU << 10U | 0x200U), changed(0x101, 0x80000004U),
        changed(0x101, 0xFFFFFFFFU), normalization_map(small_trie(), "te"), normalization_map(small_trie(), ""),
        normalization_map({}, texts), normalization_map(std::vector<std::uint32_t>(100), texts),
        small_map().substr(0, 1000), std::string("\x03\0\0\0abc", 7), std::string("\x01")})
    expect_error([&] { read(map); }, {"x.model: no SentencePiece model: its normalisation map is damaged"});
}

TEST(BadTokenizerFile, FoldersAndMissingFilesAreErrors) {
  const mhla::testing::TemporaryFolder folder;
  expect_error([&] { open_tokenizer(folder.path()); }, {folder.path().string(), "the folder has no tokenizer.json"});
  expect_error([&] { open_tokenizer(folder / "none.json"); }, {"none.json: there is no such file"});
}

// Of a terabyte without content nothing is read.
TEST(BadTokenizerFile, AHugeFileIsRefused) {
  const mhla::testing::TemporaryFolder folder;
  io::write_file(folder / "huge.json", std::string_view("{"));
  std::filesystem::resize_file(folder / "huge.json", std::uintmax_t{1} << 40);
  expect_error([&] { open_tokenizer(folder / "huge.json"); }, {"huge.json: a file of 1099511627776 bytes"});
}

TEST(BadTokenizerFile, AFileMadeToExhaustTheMemoryIsRefused) {
  const mhla::testing::TemporaryFolder folder;
  const std::string many(std::size_t{80} << 20, '[');
  io::write_file(folder / "tokenizer.json.gz", mhla::testing::gzip(std::as_bytes(std::span(many))));
  expect_error([&] { open_tokenizer(folder.path()); }, {"tokenizer.json.gz: unpacks to more than 67108864 bytes"});
}

}  // namespace
}  // namespace mhla::text
