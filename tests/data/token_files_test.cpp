// Files of tokens: what is written is read, in llm.c's layout, and nothing else is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "data/tokens/dataset.hpp"
#include "data/tokens/shard.hpp"
#include "data/tokens/tokenize.hpp"
#include "io/file.hpp"
#include "mhla/parallel.hpp"
#include "support/expect_error.hpp"
#include "support/small_tokenizers.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::data {
namespace {

namespace fs = std::filesystem;
using mhla::testing::TemporaryFolder;
using Numbers = std::vector<std::int64_t>;

std::vector<std::byte> shard_bytes(const std::vector<std::int32_t>& header, std::size_t bytes_of_tokens) {
  std::vector<std::byte> bytes(1024 + bytes_of_tokens);
  std::memcpy(bytes.data(), header.data(), 4 * header.size());
  return bytes;
}

Numbers all_of(const TokenDataset& dataset) {
  Numbers tokens(static_cast<std::size_t>(dataset.size()));
  dataset.read(0, tokens);
  return tokens;
}

TEST(TokenShard, HasTheLayoutOfLlmC) {
  const TemporaryFolder folder;
  write_shard(folder / "a.bin", std::vector<Token>{1, 65535, 258}, 65536);
  auto expected = shard_bytes({20240520, 1, 3}, 6);
  const std::vector<std::uint16_t> tokens{1, 65535, 258};
  std::memcpy(&expected[1024], tokens.data(), 6);
  EXPECT_EQ(io::read_file(folder / "a.bin"), expected);
  write_shard(folder / "b.bin", std::vector<Token>{1, 70000}, 70001);
  expected = shard_bytes({20240801, 7, 2}, 8);
  const std::vector<std::uint32_t> large{1, 70000};
  std::memcpy(&expected[1024], large.data(), 8);
  EXPECT_EQ(io::read_file(folder / "b.bin"), expected);
}

TEST(TokenShard, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  for (const std::int64_t vocabulary : {300, 100000}) {
    write_shard(folder / "a.bin", std::vector<Token>{5, 299, 0, 7}, vocabulary);
    const TokenShard shard = TokenShard::load(folder / "a.bin");
    EXPECT_EQ(shard.size(), 4);
    Numbers tokens(2);
    shard.read(1, vocabulary, tokens);
    EXPECT_EQ(tokens, (Numbers{299, 0}));
    expect_error([&] { shard.read(3, vocabulary, tokens); }, {"a.bin: tokens 3 to 5 are asked for; it has 4"});
    expect_error([&] { shard.read(-1, vocabulary, tokens); }, {"a.bin"});
    expect_error([&] { shard.read(0, 299, tokens); }, {"a.bin: token 1 is 299; it may be 0 to 298"});
  }
  expect_error([&] { write_shard(folder / "b.bin", std::vector<Token>{5}, 5); },
               {"b.bin: token is 5; it may be 0 to 4"});
  expect_error([&] { write_shard(folder / "b.bin", std::vector<Token>{-1}, 5); }, {"b.bin: token is -1"});
  EXPECT_FALSE(fs::exists(folder / "b.bin"));
}

struct BadShard {
  const char* name;
  std::vector<std::byte> bytes;
  const char* reason;

  friend std::ostream& operator<<(std::ostream& stream, const BadShard& file) { return stream << file.name; }
};

class BadTokenShard : public ::testing::TestWithParam<BadShard> {};

TEST_P(BadTokenShard, IsRefusedWithAReason) {
  expect_error([&] { TokenShard::parse(GetParam().bytes, "x.bin"); }, {"x.bin: ", GetParam().reason});
}

INSTANTIATE_TEST_SUITE_P(
    Table, BadTokenShard,
    ::testing::Values(BadShard{"Empty", {}, "0 bytes; the header"},
                      BadShard{"HalfAHeader", {1000, std::byte{}}, "1000 bytes"},
                      BadShard{"AnotherMagicNumber", shard_bytes({20240521, 1, 3}, 6), "it begins with 20240521"},
                      BadShard{"AnotherVersion", shard_bytes({20240520, 7, 3}, 6), "the version is 7; with 20240520"},
                      BadShard{"TooShort", shard_bytes({20240520, 1, 3}, 5), "3 tokens of 2 bytes; 5 bytes follow"},
                      BadShard{"TooLong", shard_bytes({20240801, 7, 3}, 13), "3 tokens of 4 bytes; 13 bytes follow"},
                      BadShard{"NegativeCount", shard_bytes({20240520, 1, -3}, 6), "-3 tokens"},
                      BadShard{"HugeCount", shard_bytes({20240520, 1, 0x7FFFFFFF}, 6), "2147483647 tokens"}),
    [](const auto& info) { return std::string(info.param.name); });

// Texts, a small tokenizer, and the split that tokenize_files makes of them.
class Tokenized : public ::testing::Test {
 protected:
  Tokenized() {
    io::write_file(folder_ / "tokenizer.json", mhla::testing::small_tokenizer_json());
    io::write_file(folder_ / "a.txt", "the th\n<|endoftext|>\nthe");
    io::write_file(folder_ / "b.jsonl", "{\"text\": \"ththe\"}\n{\"text\": \"th the th\"}\n");
    tokenizer_ = text::open_tokenizer(folder_ / "tokenizer.json");
  }

  TokenIndex tokenize(const char* split, std::int64_t tokens_of_shard) {
    return tokenize_files(*tokenizer_, {folder_ / "a.txt", folder_ / "b.jsonl"}, folder_ / split, tokens_of_shard);
  }

  // the: 257, th: 256, " th": 258, "\n": its byte
  Numbers expected() const {
    const std::int64_t newline = tokenizer_->encode("\n").front(), space = tokenizer_->encode(" ").front();
    return {259, 257, 258, newline, 259, 257, 259, 256, 257, 259, 256, space, 257, 258};
  }

  void spoil(const char* what, const char* by, const char* reason) {
    tokenize("spoilt", 4);
    const fs::path index = folder_ / "spoilt/index.json";
    const auto bytes = io::read_file(index);
    std::string json(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::size_t at = json.find(what);
    ASSERT_NE(at, std::string::npos) << json;
    io::write_file(index, json.replace(at, std::strlen(what), by));
    expect_error([&] { TokenDataset{folder_ / "spoilt"}; }, {"spoilt", reason});
    fs::remove_all(folder_ / "spoilt");
  }

  TemporaryFolder folder_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
};

TEST_F(Tokenized, EveryDocumentStandsBehindTheTokenThatBeginsIt) {
  const TokenIndex index = tokenize("train", 1000);
  EXPECT_EQ(index.documents, 4);
  EXPECT_EQ(index.bytes, 7 + 3 + 5 + 9);
  EXPECT_EQ(index.begin, 259);
  EXPECT_EQ(index.vocabulary, 260);
  const TokenDataset dataset(folder_ / "train");
  EXPECT_EQ(dataset.index().tokenizer, tokenizer_->fingerprint());
  EXPECT_EQ(dataset.index().documents, 4);
  EXPECT_EQ(all_of(dataset), expected());
  EXPECT_EQ(dataset.document_starts(), (Numbers{0, 4, 6, 9}));
}

TEST_F(Tokenized, ShardsAreOneRowOfTokens) {
  for (const std::int64_t of_shard : {1, 3, 5, 14}) {
    const std::string split = "train" + std::to_string(of_shard);
    EXPECT_EQ(std::ssize(tokenize(split.c_str(), of_shard).shards), (14 + of_shard - 1) / of_shard);
    const TokenDataset dataset(folder_ / split);
    EXPECT_EQ(all_of(dataset), expected());
    for (std::int64_t first = 0; first <= 14; ++first)
      for (std::int64_t count = 0; first + count <= 14; ++count) {
        Numbers tokens(static_cast<std::size_t>(count));
        dataset.read(first, tokens);
        const Numbers all = expected();
        EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), all.begin() + first)) << first << " " << count;
      }
    Numbers tokens(3);
    expect_error([&] { dataset.read(12, tokens); }, {split, "tokens 12 to 15 are asked for; it has 14"});
  }
}

TEST_F(Tokenized, ASplitIsThereWhenItIsComplete) {
  tokenize("train", 1000);
  expect_error([&] { tokenize("train", 1000); }, {"train: exists already"});
  io::write_file(folder_ / "b.jsonl", "{\"text\": \"th\"}\n{\"text\": 5}\n");
  expect_error([&] { tokenize("val", 1); }, {"b.jsonl: line 2"});
  io::write_file(folder_ / "a.txt", " ");
  io::write_file(folder_ / "b.jsonl", "");
  expect_error([&] { tokenize("val", 1); }, {"a.txt: no text in 2 files"});
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_.path())) left.push_back(entry.path().filename().string());
  std::ranges::sort(left);
  EXPECT_EQ(left, (std::vector<std::string>{"a.txt", "b.jsonl", "tokenizer.json", "train"}));
}

TEST_F(Tokenized, OfTwoThatMakeTheSameSplitTheSecondIsRefused) {
  bool asked = false;
  const auto second = [&](double /*done*/, std::int64_t /*tokens*/) {
    if (!std::exchange(asked, true)) expect_error([&] { tokenize("train", 7); }, {"train: another process is making"});
  };
  tokenize_files(*tokenizer_, {folder_ / "a.txt", folder_ / "b.jsonl"}, folder_ / "train", 4, second);
  EXPECT_TRUE(asked);
  EXPECT_EQ(all_of(TokenDataset(folder_ / "train")), expected());
}

TEST_F(Tokenized, AModelOfSentencePieceBeginsTextsWithItsOwnToken) {
  io::write_file(folder_ / "a.model", mhla::testing::small_sentence_piece());
  tokenizer_ = text::open_tokenizer(folder_ / "a.model");
  EXPECT_EQ(tokenize("train", 1000).begin, 1);
}

TEST_F(Tokenized, AnIndexThatDoesNotFitItsShardsIsRefused) {
  spoil("\"tokens\": 14", "\"tokens\": 15", "the shards lack 1 of its 15 tokens");
  spoil("\"tokens\": 14", "\"tokens\": 13", "the shards have more than its 13 tokens");
  spoil("\"tokens\": 14", "\"tokens\": -14", "\"tokens\" is -14");
  spoil("\"tokens\": 14", "\"tokens\": 14.5", "\"tokens\" is 14.5");
  spoil("\"tokens\": 4", "\"tokens\": 5", "the shards have more");
  spoil("000001.bin", "000009.bin", "000009.bin: there is no such file");
  spoil("000001.bin", "../a.txt", "no name of a file beside it");
  spoil("\"begin\": 259", "\"begin\": 260", "\"begin\" is 260; the vocabulary has 260");
  spoil("\"vocabulary\": 260", "\"vocabulary\": 70000", "tokens of 2 bytes; a vocabulary of 70000 has 4");
  spoil("\"tokenizer\": ", "\"other\": ", "\"tokenizer\" is missing");
  spoil("\"shards\": [", "\"shards\": 3, \"x\": [", "\"shards\" must be a list");
  spoil("{", "[{", "not valid JSON");
  expect_error([&] { TokenDataset{folder_ / "none"}; }, {"none/index.json: there is no such file"});
}

TEST_F(Tokenized, ATokenOutsideTheVocabularyIsNamedWhenItIsRead) {
  tokenize("train", 5);
  write_shard(folder_ / "train/000001.bin", std::vector<Token>{257, 300, 0, 0, 0}, 65536);
  const TokenDataset dataset(folder_ / "train");
  expect_error([&] { all_of(dataset); }, {"000001.bin: token 1 is 300; it may be 0 to 259"});
}

}  // namespace
}  // namespace mhla::data
