// Tokens are those of the public libraries, and decode to the text they came from.
#include "text/tokenizer.hpp"

#include <gtest/gtest.h>

#include "io/file.hpp"
#include "io/gzip.hpp"
#include "io/json.hpp"
#include "support/expect_error.hpp"
#include "support/small_tokenizers.hpp"
#include "support/temporary_folder.hpp"
#include "text/known_tokenizers.hpp"

namespace mhla::text {
namespace {

using testing::gpt2, testing::mistral;

struct Case {
  std::string text;
  std::vector<Token> gpt2, mistral;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    const auto bytes = io::gunzip(io::read_file(testing::data_file("cases.jsonl.gz")), "cases.jsonl.gz");
    std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    std::vector<Case> result;
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      const io::Json json = io::parse_json(rest.substr(0, end), "cases.jsonl.gz");
      result.push_back({json["text"], json["gpt2"], json["mistral_v1_32000"]});
      rest.remove_prefix(end + 1);
    }
    return result;
  }();
  return all;
}

TEST(Tokenizer, Gpt2GivesTheTokensOfThePublicLibraries) {
  ASSERT_EQ(cases().size(), 903U);
  for (const Case& each : cases()) ASSERT_EQ(gpt2().encode(each.text), each.gpt2) << each.text;
}

TEST(Tokenizer, SentencePieceGivesTheTokensOfThePublicLibraries) {
  for (const Case& each : cases()) ASSERT_EQ(mistral().encode(each.text), each.mistral) << each.text;
}

TEST(Tokenizer, DecodingGivesTheTextBack) {
  for (const Case& each : cases()) {
    ASSERT_EQ(gpt2().decode(each.gpt2), each.text);
    // U+2581 is how SentencePiece writes a space, so it is one afterwards.
    std::string text = each.text;
    for (std::size_t at = 0; (at = text.find("\xE2\x96\x81", at)) != std::string::npos;) text.replace(at, 3, " ");
    ASSERT_EQ(mistral().decode(each.mistral), text);
  }
}

TEST(Tokenizer, SaysWhatItIs) {
  EXPECT_EQ(gpt2().size(), 50257);
  EXPECT_EQ(gpt2().kind(), "byte-level BPE");
  EXPECT_EQ(gpt2().special().begin, 50256);
  EXPECT_EQ(gpt2().special().end, 50256);
  EXPECT_EQ(gpt2().special().unknown, std::nullopt);
  EXPECT_FALSE(gpt2().space_in_front());
  EXPECT_EQ(gpt2().piece(262), " the");
  EXPECT_EQ(gpt2().piece(50256), "");
  EXPECT_EQ(mistral().size(), 32000);
  EXPECT_EQ(mistral().kind(), "SentencePiece");
  EXPECT_EQ(mistral().special().begin, 1);
  EXPECT_EQ(mistral().special().end, 2);
  EXPECT_EQ(mistral().special().unknown, 0);
  EXPECT_EQ(mistral().special().pad, std::nullopt);
  EXPECT_TRUE(mistral().space_in_front());
  EXPECT_EQ(mistral().piece(3 + 0x0A), "\n");
  EXPECT_EQ(mistral().piece(2), "");
  EXPECT_NE(gpt2().fingerprint(), mistral().fingerprint());
}

TEST(Tokenizer, TokensOutsideTheVocabularyAreRefused) {
  for (const Tokenizer* tokenizer : {&gpt2(), &mistral()})
    for (const std::int64_t token : {std::int64_t{-1}, tokenizer->size()})
      expect_error([&] { tokenizer->decode(std::vector<Token>{5, static_cast<Token>(token)}); },
                   {"token is " + std::to_string(token), "it may be 0 to " + std::to_string(tokenizer->size() - 1)});
}

// No character of a broken text is lost or joined with its neighbours in GPT-2's; U+FFFD stands for it in both.
TEST(Tokenizer, TextThatIsNotUtf8IsEncoded) {
  const std::string text = "caf\xE9 \xE6\x97 \xFF'll\xC3";
  std::string bytes;
  for (const Token token : gpt2().encode(text)) bytes += gpt2().piece(token);
  EXPECT_EQ(bytes, text);
  const std::string shown = "caf\xEF\xBF\xBD \xEF\xBF\xBD \xEF\xBF\xBD'll\xEF\xBF\xBD";
  EXPECT_EQ(gpt2().decode(gpt2().encode(text)), shown);
  EXPECT_EQ(mistral().decode(mistral().encode("caf\xE9 \xFF")), "caf\xEF\xBF\xBD \xEF\xBF\xBD");
}

TEST(Tokenizer, PartsHaveTheTokensOfTheWhole) {
  std::string text;
  for (const Case& each : cases()) text += each.text;
  for (const Tokenizer* tokenizer : {&gpt2(), &mistral()})
    for (const std::size_t size : {1U, 7U, 64U, 1000U}) {
      const std::vector<Token> whole = tokenizer->encode(text);
      std::vector<Token> tokens;
      const auto parts = tokenizer->parts(text, size);
      EXPECT_GT(parts.size(), text.size() / (size + 100));
      for (const std::string_view part : parts)
        for (const Token token : tokenizer->encode(part)) tokens.push_back(token);
      EXPECT_EQ(tokens, whole) << size;
    }
}

TEST(Tokenizer, ACopyIsTheSameTokenizer) {
  const mhla::testing::TemporaryFolder folder;
  io::write_file(folder / "books.json", mhla::testing::small_tokenizer_json());
  const std::vector<std::pair<std::string, std::filesystem::path>> all{
      {"tokenizer.json", folder / "books.json"},
      {"tokenizer.model", testing::data_file("mistral_v1_32000.model.gz")},
      {"vocab.json", testing::data_file("gpt2_encoder.json.gz")}};
  for (const auto& [name, path] : all) {
    const std::filesystem::path copy = folder / ("copy_" + name);
    EXPECT_FALSE(has_tokenizer(copy));
    copy_tokenizer(path, copy);
    EXPECT_TRUE(has_tokenizer(copy));
    EXPECT_TRUE(std::filesystem::exists(copy / name));
    EXPECT_EQ(open_tokenizer(copy)->fingerprint(), open_tokenizer(path)->fingerprint()) << name;
  }
}

}  // namespace
}  // namespace mhla::text
