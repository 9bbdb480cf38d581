// Text token by token.
#include "text/text_stream.hpp"

#include <gtest/gtest.h>

#include "io/printable.hpp"
#include "text/known_tokenizers.hpp"

namespace mhla::text {
namespace {

using testing::gpt2, testing::mistral;

constexpr std::string_view kText =
    " It costs 5 \u20AC \u2014 \u65E5\u672C\u8A9E \U0001F332\U0001F1FA\U0001F1F8 na\u00EFve \u0F3C\u1F50F";

TEST(TextStream, NeverPrintsHalfACharacter) {
  for (const Tokenizer* tokenizer : {&gpt2(), &mistral()}) {
    TextStream stream(*tokenizer);
    std::string text;
    bool waited = false;
    for (const Token token : tokenizer->encode(kText)) {
      const std::string more = stream.add(token);
      EXPECT_TRUE(io::is_utf8(more));
      waited = waited || more.empty();
      text += more;
    }
    EXPECT_TRUE(waited);
    EXPECT_EQ(text, kText);
    EXPECT_EQ(stream.finish(), "");
  }
}

// What cannot become a character is shown as soon as that is certain; GPT-2's single bytes.
TEST(TextStream, BrokenCharactersAreReplaced) {
  const auto byte = [](unsigned char value) { return gpt2().encode(std::string(1, static_cast<char>(value))).front(); };
  const std::string broken = "\uFFFD";
  TextStream stream(gpt2());
  EXPECT_EQ(stream.add(byte(0xE6)), "");
  EXPECT_EQ(stream.add(byte(0x97)), "");
  EXPECT_EQ(stream.add(byte('a')), broken + "a");
  EXPECT_EQ(stream.add(byte(0x97)), broken);
  EXPECT_EQ(stream.add(byte(0xC3)), "");
  EXPECT_EQ(stream.add(byte(0xC3)), broken);
  EXPECT_EQ(stream.add(byte(0xA9)), "\u00E9");
  EXPECT_EQ(stream.add(byte(0xF0)), "");
  EXPECT_EQ(stream.finish(), broken);
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, SpecialTokensAreNothing) {
  TextStream stream(gpt2());
  EXPECT_EQ(stream.add(50256), "");
  EXPECT_EQ(mistral().decode(std::vector<Token>{1, 22557, 2}), "Hello");
}

// SentencePiece puts one space before a text, which is no part of it.
TEST(TextStream, TheSpaceInFrontIsDroppedOncePerText) {
  const std::vector<Token> tokens = mistral().encode("  a b");
  TextStream stream(mistral());
  for (int text = 0; text < 2; ++text) {
    std::string printed;
    for (const Token token : tokens) printed += stream.add(token);
    EXPECT_EQ(printed + stream.finish(), "  a b");
  }
}

}  // namespace
}  // namespace mhla::text
