// Many texts at once, the same on any number of threads; words repeated and texts cut change nothing.
#include "text/encode_all.hpp"

#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include "io/file.hpp"
#include "io/gzip.hpp"
#include "mhla/parallel.hpp"
#include "support/small_tokenizers.hpp"
#include "support/temporary_folder.hpp"
#include "text/known_tokenizers.hpp"

namespace mhla::text {
namespace {

using testing::gpt2, testing::mistral;

// Over two megabytes of different words, some of them not English and some not UTF-8.
std::string long_text() {
  std::string text;
  std::uint64_t state = 1;
  while (text.size() < 2'200'000) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    text += "the " + std::to_string(state >> 44U) + "  \u65E5'll " + (state % 7 == 0 ? "\n" : "a-b\u00E9 ") + "!x";
    if (state % 1000 == 0) text += '\xFF';
  }
  return text;
}

TEST(EncodeAll, GivesTheSameTokensOnAnyNumberOfThreads) {
  const std::string text = long_text();
  const std::vector<std::string_view> texts{"", "Hello", text, " a", std::string_view(text).substr(5, 1000), ""};
  for (const Tokenizer* tokenizer : {&gpt2(), &mistral()}) {
    std::vector<std::vector<Token>> expected;
    for (const std::string_view each : texts) expected.push_back(tokenizer->encode(each));
    const int before = default_parallel().threads;
    for (const int threads : {1, 3}) {
      set_num_threads(threads);
      EXPECT_EQ(encode_all(*tokenizer, texts), expected) << threads;
    }
    set_num_threads(before);
  }
}

// Words are encoded one by one where the model allows it: the library encodes the text at once.
TEST(EncodeAll, SentencePieceGivesTheTokensOfTheWholeText) {
  using mhla::testing::small_sentence_piece;
  const mhla::testing::TemporaryFolder folder;
  const auto packed = io::read_file(testing::data_file("mistral_v1_32000.model.gz"));
  const auto bytes = io::gunzip(packed, "mistral");
  const std::string large(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string text = long_text().substr(0, 20000) + "the theme  the the\tmeth the the the  theme th.the ,the ";
  for (const std::string& model :
       {large, small_sentence_piece(), small_sentence_piece({.bytes = false}), small_sentence_piece({.unigram = true}),
        small_sentence_piece({.joined = true}), small_sentence_piece({.space_first = false})}) {
    io::write_file(folder / "a.model", model);
    const auto tokenizer = open_tokenizer(folder / "a.model");
    sentencepiece::SentencePieceProcessor processor;
    ASSERT_TRUE(processor.LoadFromSerializedProto(model).ok());
    for (const std::string& each : {text, std::string("the the theme the"), std::string(" the"), std::string("the ")}) {
      EXPECT_EQ(tokenizer->encode(each), processor.EncodeAsIds(each));
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(each)), processor.DecodeIds(processor.EncodeAsIds(each)));
    }
  }
}

}  // namespace
}  // namespace mhla::text
