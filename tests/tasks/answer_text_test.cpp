// The text of an answer: whole characters, and nothing of a stop string.
#include "tasks/language/answer_text.hpp"

#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "support/small_language_model.hpp"

namespace mhla::tasks {
namespace {

using mhla::testing::small_sentence_piece;
using mhla::testing::small_tokenizer_json;
using mhla::testing::tokenizer_of_bytes;

// What was said after each token, then at the end.
std::vector<std::string> pieces(AnswerText& text, const std::vector<text::Token>& tokens) {
  std::vector<std::string> said;
  for (const text::Token token : tokens) said.push_back(text.add(token));
  said.push_back(text.finish());
  return said;
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += text;
  return all;
}

TEST(AnswerText, EndsBeforeAStopStringThatSpansTokens) {
  const auto tokenizer = tokenizer_of_bytes(small_tokenizer_json());
  const auto tokens = tokenizer->encode("see the end. And more");
  for (const auto& [stop, expected] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{{{"end"}, "see the "},
                                                                     {{"the end"}, "see "},
                                                                     {{"And", ". "}, "see the end"},
                                                                     {{"nd"}, "see the e"},
                                                                     {{"see"}, ""},
                                                                     {{"more!"}, "see the end. And more"},
                                                                     {{}, "see the end. And more"}}) {
    AnswerText text(*tokenizer, stop);
    EXPECT_EQ(joined(pieces(text, tokens)), expected);
    EXPECT_EQ(text.stopped(), expected != "see the end. And more");
    EXPECT_EQ(text.add(tokens.front()), text.stopped() ? "" : "s");
  }
}

TEST(AnswerText, HoldsBackNoMoreThanWhatMayBecomeAStopString) {
  const auto tokenizer = tokenizer_of_bytes(small_tokenizer_json());
  AnswerText text(*tokenizer, {"aab"});
  EXPECT_EQ(pieces(text, tokenizer->encode("xaaac")), (std::vector<std::string>{"x", "", "", "a", "aac", ""}));
  AnswerText end(*tokenizer, {"aab"});
  EXPECT_EQ(pieces(end, tokenizer->encode("aa")), (std::vector<std::string>{"", "", "aa"}));
}

TEST(AnswerText, SaysWholeCharacters) {
  const auto tokenizer = tokenizer_of_bytes(small_tokenizer_json());
  AnswerText text(*tokenizer, {});
  EXPECT_EQ(pieces(text, tokenizer->encode("é€")), (std::vector<std::string>{"", "é", "", "", "€", ""}));
  AnswerText cut(*tokenizer, {});
  const auto bytes = tokenizer->encode("€");
  EXPECT_EQ(pieces(cut, {bytes[0], bytes[1]}), (std::vector<std::string>{"", "", "\uFFFD"}));
  AnswerText stopped(*tokenizer, {"€"});
  EXPECT_EQ(joined(pieces(stopped, tokenizer->encode("a€b"))), "a");
}

TEST(AnswerText, OfSentencePieceBeginsWithoutTheSpaceThatEncodingPuts) {
  const auto tokenizer = tokenizer_of_bytes(small_sentence_piece());
  AnswerText text(*tokenizer, {});
  EXPECT_EQ(joined(pieces(text, tokenizer->encode("the theme"))), "the theme");
  AnswerText stopped(*tokenizer, {" th"});
  EXPECT_EQ(joined(pieces(stopped, tokenizer->encode("the theme"))), "the");
}

TEST(AnswerText, AnEmptyStopStringIsRefused) {
  const auto tokenizer = tokenizer_of_bytes(small_tokenizer_json());
  expect_error([&] { AnswerText(*tokenizer, {"a", ""}); }, {"a stop string is empty"});
}

}  // namespace
}  // namespace mhla::tasks
