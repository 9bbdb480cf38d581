// Words as GPT-2's pattern finds them.
#include "text/pre_tokens.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/characters.hpp"

namespace mhla::text {
namespace {

using Words = std::vector<std::string>;

Words words_of(std::string_view text) {
  Words words;
  while (!text.empty()) {
    const std::size_t size = first_word(text);
    words.emplace_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return words;
}

TEST(PreTokens, WordsAreThoseOfThePattern) {
  for (const Words& words : {
           Words{"Hello", " world", "!"}, Words{"we", "'ve", " it", "'s", " '", "tis", " DON", "'", "T"},
           Words{"'ll", "'ll", "''", "s", " '", "s"},  // a contraction has no space before it
           Words{"a", "1", "b", "22", " 3", ".", "14"}, Words{" ", " a", "  ", " b", "   "},
           Words{"a", "\n", "\n", "b", " \n", "\t", "c", "\r\n"}, Words{"a", "\n\n"}, Words{" "},
           Words{"x", " !?", "y"},
           Words{"caf\u00E9", "\u00A0", "\u00BD", "\u2009", "\u65E5\u672C", "\u3000", "\u0663", "\U0001F332"},
           Words{"e", "\u0301", "a"},                                                             // a mark is no letter
           Words{"a", "\xE9\xFF", "b", " \xE6", " "}, Words{"a", std::string("\x1F\0", 2), "b"},  // no white space
       }) {
    std::string text;
    for (const std::string& word : words) text += word;
    EXPECT_EQ(words_of(text), words) << text;
  }
}

TEST(PreTokens, PartsAreCutBetweenWords) {
  const std::string text = "one  two\n\nthree \u65E5\u672C \u00A0four'll five\xFF six";
  for (std::size_t size = 1; size < 12; ++size) {
    Words together;
    std::string joined;
    for (const std::string_view part : parts_of_words(text, size)) {
      for (const std::string& word : words_of(part)) together.push_back(word);
      joined += part;
    }
    EXPECT_EQ(joined, text);
    EXPECT_EQ(together, words_of(text)) << size;
  }
  EXPECT_GT(parts_of_words(text, 1).size(), 4U);
  EXPECT_EQ(parts_of_words(std::string(100, 'a'), 10).size(), 1U);
  EXPECT_TRUE(parts_of_words("", 1).empty());
}

TEST(PreTokens, CharactersHaveTheirUnicodeKind) {
  using Kind = CharacterKind;
  const auto kind = [](std::string_view text) { return first_kind(text).kind; };
  for (const char* letter : {"a", "Z", "\u00AA", "\u0416", "\u1E9E", "\u4E00", "\U00020000", "\u02B0"})
    EXPECT_EQ(kind(letter), Kind::letter) << letter;
  for (const char* number : {"0", "\u00B2", "\u00BC", "\u0669", "\u2167", "\u3007", "\U0001D7CE"})
    EXPECT_EQ(kind(number), Kind::number) << number;
  for (const char* space : {" ", "\t", "\n", "\v", "\f", "\r", "\u0085", "\u00A0", "\u1680", "\u2000", "\u200A",
                            "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"})
    EXPECT_EQ(kind(space), Kind::space) << space;
  for (const char* other :
       {"!", "_", "\x1c", "\x7f", "\u0301", "\u200B", "\u2060", "\uFEFF", "\U0001F600", "\U0010FFFF", "\xFF"})
    EXPECT_EQ(kind(other), Kind::other) << other;
}

}  // namespace
}  // namespace mhla::text
