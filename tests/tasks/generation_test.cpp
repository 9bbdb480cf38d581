// Answers of language models: alone and among others, at once and in parts.
#include "tasks/language/generation.hpp"

#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "support/small_language_model.hpp"
#include "tasks/language/conversation.hpp"

namespace mhla::tasks {
namespace {

using mhla::testing::small_language_model;
using mhla::testing::small_language_options;

GenerationRequest request_of(const LanguageModel& model, const std::string& prompt, std::uint64_t seed = 1,
                             std::int64_t tokens = 30) {
  GenerationRequest request;
  request.prompt = prompt_tokens(*model.tokenizer, prompt);
  request.tokens = tokens;
  request.sampling.seed = seed;
  request.past_end = true;
  return request;
}

Answer alone(const LanguageModel& model, const GenerationRequest& request) {
  return generate(model, {&request, 1}).front();
}

TEST(Generation, AnAnswerIsTheSameAloneAndInABatch) {
  for (const auto& attention : {std::vector<std::string>{"mhla"}, {"linear"}, {"gla"}, {"softmax"}}) {
    const LanguageModel model = small_language_model(small_language_options(attention));
    std::vector<GenerationRequest> requests;
    std::uint64_t seed = 0;
    for (const char* prompt : {"the theme of the thesis", "", "x", "the theme of the thesis",
                               "a longer text, beyond "
                               "four blocks of tokens"}) {
      ++seed;
      requests.push_back(request_of(model, prompt, seed, 4 + 3 * static_cast<std::int64_t>(seed)));
    }
    requests[2].sampling.repetition_penalty = 1.3;
    requests[2].sampling.temperature = 0.7;
    const std::vector<Answer> together = generate(model, requests);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Answer expected = alone(model, requests[i]);
      EXPECT_EQ(together[i].tokens, expected.tokens) << attention.front() << " " << i;
      EXPECT_EQ(together[i].text, expected.text);
      EXPECT_EQ(std::ssize(together[i].tokens), requests[i].tokens);
    }
    EXPECT_NE(together[0].text, together[3].text);  // of other seeds
  }
}

TEST(Generation, WhatIsSaidOnTheWayIsTheAnswer) {
  const LanguageModel model = small_language_model();
  const std::vector<GenerationRequest> requests = {request_of(model, "the", 3), request_of(model, "theme", 4, 9)};
  std::vector<std::string> said(2);
  std::int64_t read = 0;
  GenerationTimes times;
  const std::vector<Answer> answers = generate(model, requests,
                                               {.read =
                                                    [&](std::int64_t tokens) {
                                                      read += tokens;
                                                      return true;
                                                    },
                                                .say =
                                                    [&](std::size_t request, const std::string& text) {
                                                      said[request] += text;
                                                      return true;
                                                    }},
                                               &times);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(said[i], answers[i].text);
    EXPECT_EQ(answers[i].text, model.tokenizer->decode(answers[i].tokens));
    EXPECT_EQ(answers[i].end, AnswerEnd::length);
  }
  EXPECT_EQ(read, std::ssize(requests[0].prompt) + std::ssize(requests[1].prompt));
  EXPECT_EQ(times.prompt_tokens, read);
  EXPECT_EQ(times.step_seconds.size(), 30);
  EXPECT_EQ(times.answer_tokens, 39);
  EXPECT_EQ(times.state_bytes.size(), 1);
}

TEST(Generation, StopStringsAndTheEndTokenEndAnAnswer) {
  const LanguageModel model = small_language_model();
  GenerationRequest request = request_of(model, "the", 5, 60);
  const Answer whole = alone(model, request);
  ASSERT_GT(whole.text.size(), 20);
  std::size_t place = 12;  // where a character begins
  while ((static_cast<unsigned char>(whole.text[place]) & 0xC0U) == 0x80U) ++place;
  request.stop = {"never to be found", whole.text.substr(place, 5)};
  const Answer stopped = alone(model, request);
  EXPECT_EQ(stopped.end, AnswerEnd::stop);
  EXPECT_EQ(stopped.text, whole.text.substr(0, whole.text.find(request.stop[1])));
  request.stop.clear();
  request.past_end = false;
  request.sampling.temperature = 5.0;  // the end token is one of 260 words
  request.tokens = 5000;
  const Answer ended = alone(model, request);
  EXPECT_EQ(ended.end, AnswerEnd::end_token);
  EXPECT_LT(ended.tokens.size(), 5000);
  EXPECT_EQ(std::ranges::count(ended.tokens, *model.tokenizer->special().end), 0);
}

TEST(Generation, SeedAndNumberOfTheSequenceDecide) {
  const LanguageModel model = small_language_model();
  GenerationRequest request = request_of(model, "the", 5);
  const Answer first = alone(model, request);
  EXPECT_EQ(alone(model, request).tokens, first.tokens);
  request.sequence = 1;
  EXPECT_NE(alone(model, request).tokens, first.tokens);
  request.sequence = 0;
  request.sampling.seed = 6;
  EXPECT_NE(alone(model, request).tokens, first.tokens);
  request.sampling.temperature = 0.0;
  const Answer likeliest = alone(model, request);
  request.sampling.seed = 7;
  EXPECT_EQ(alone(model, request).tokens, likeliest.tokens);
}

TEST(Generation, TheWatchEndsIt) {
  const LanguageModel model = small_language_model();
  const std::vector<GenerationRequest> requests = {request_of(model, "the", 3), request_of(model, "a", 4)};
  int said = 0;
  const std::vector<Answer> answers =
      generate(model, requests, {.read = {}, .say = [&](std::size_t, const std::string&) { return ++said < 7; }});
  EXPECT_EQ(answers[0].end, AnswerEnd::interrupted);
  EXPECT_EQ(answers[0].tokens.size(), 4);
  EXPECT_EQ(generate(model, requests, {.read = [](std::int64_t) { return false; }, .say = {}})[1].end,
            AnswerEnd::interrupted);
}

TEST(Generation, LongPromptsAreReadInPieces) {
  const LanguageModel model = small_language_model();
  std::string text;
  for (int i = 0; i < 900; ++i) text += "the theme " + std::to_string(i);
  const auto tokens = prompt_tokens(*model.tokenizer, text);
  ASSERT_GT(tokens.size(), 3000);
  models::LmState state = model.model->new_state(1), whole = model.model->new_state(1);
  std::int64_t most = 0;
  const at::Tensor logits = read_tokens(*model.model, state, tokens,
                                        {.read =
                                             [&](std::int64_t count) {
                                               most = std::max(most, count);
                                               return true;
                                             },
                                         .say = {}});
  EXPECT_EQ(most, 1024);
  const at::Tensor ids = torch::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end())).unsqueeze(0);
  EXPECT_LT(models::testing::relative_error(logits, model.model->prefill(whole, ids)), 1e-5);
}

TEST(Generation, WhatCannotBeIsRefusedBeforeItBegins) {
  models::LmOptions options = small_language_options();
  options.beyond = "error";  // 32 tokens
  const LanguageModel model = small_language_model(options);
  bool begun = false;
  const GenerationWatch watch{.read = [&](std::int64_t) { return begun = true; }, .say = {}};
  const auto refused = [&](GenerationRequest wrong, std::initializer_list<std::string_view> mentions) {
    const std::vector<GenerationRequest> requests = {request_of(model, "the", 1, 5), std::move(wrong)};
    expect_error([&] { generate(model, requests, watch); }, mentions);
    EXPECT_FALSE(begun);
  };
  GenerationRequest good = request_of(model, "the", 1, 31);
  EXPECT_EQ(alone(model, good).tokens.size(), 31);  // 2 + 31 tokens, of which the last is not read
  refused(request_of(model, "the", 1, 32), {"2 + 32 tokens", "reads 32 at most", "beyond clamp"});
  refused(request_of(model, std::string(40, 'x'), 1, 1), {"41 + 1 tokens"});
  auto wrong = good;
  wrong.prompt = {};
  refused(wrong, {"prompt is empty"});
  wrong.prompt = {3, 260};
  refused(wrong, {"prompt has the token 260; tokens may be 0 to 259"});
  wrong = good;
  wrong.tokens = 0;
  refused(wrong, {"tokens is 0"});
  wrong = good;
  wrong.stop = {""};
  refused(wrong, {"a stop string is empty"});
  wrong = good;
  wrong.sampling.top_p = 0.0;
  refused(wrong, {"top_p is 0"});
  expect_error([&] { prompt_tokens(*model.tokenizer, "a\xFF"); }, {"prompt is not UTF-8"});
  EXPECT_TRUE(generate(model, {}).empty());
}

// Some models have more words than their tokenizer: nobody knows what these mean.
TEST(Generation, WordsWithoutAMeaningAreNeverDrawn) {
  models::LmOptions options = small_language_options();
  options.vocabulary = 320;
  const LanguageModel model = small_language_model(options);
  GenerationRequest request = request_of(model, "", 2, 300);
  request.sampling.temperature = 5.0;
  for (const text::Token token : alone(model, request).tokens) EXPECT_LT(token, 260);
}

TEST(Conversation, SavedAndRestoredItGoesOnAsIfNothingHadHappened) {
  for (const auto& attention : {std::vector<std::string>{"mhla"}, {"softmax", "gla"}}) {
    const LanguageModel model = small_language_model(small_language_options(attention));
    GenerationRequest request = request_of(model, "the theme", 3, 40);
    request.sampling.repetition_penalty = 1.1;
    const Answer whole = Conversation(model).answer(request);
    EXPECT_EQ(whole.tokens, alone(model, request).tokens);
    Conversation first(model);
    request.tokens = 17;
    std::string text = first.answer(request).text;
    Conversation second(model, first.save(), "saved");
    EXPECT_EQ(second.tokens(), first.tokens());
    request.prompt.clear();
    request.tokens = 23;
    const Answer rest = second.answer(request);
    EXPECT_EQ(rest.tokens, std::vector<text::Token>(whole.tokens.begin() + 17, whole.tokens.end()));
    EXPECT_EQ(first.answer(request).tokens, rest.tokens);
  }
}

TEST(Conversation, APromptGoesOnFromTheLastAnswer) {
  const LanguageModel model = small_language_model();
  Conversation conversation(model);
  GenerationRequest request = request_of(model, "the theme", 3, 7);
  const Answer first = conversation.answer(request);
  GenerationRequest all = request;
  all.prompt.insert(all.prompt.end(), first.tokens.begin(), first.tokens.end());
  request.prompt = model.tokenizer->encode(" them");
  all.prompt.insert(all.prompt.end(), request.prompt.begin(), request.prompt.end());
  EXPECT_EQ(conversation.answer(request).tokens, alone(model, all).tokens);
}

TEST(Conversation, AnEndedAnswerNeedsAPromptToGoOn) {
  const LanguageModel model = small_language_model();
  Conversation conversation(model);
  GenerationRequest request = request_of(model, "the", 5, 5000);
  request.past_end = false;
  request.sampling.temperature = 5.0;
  ASSERT_EQ(conversation.answer(request).end, AnswerEnd::end_token);
  request.prompt.clear();
  expect_error([&] { conversation.answer(request); }, {"prompt is empty", "has come to its end"});
  request.prompt = model.tokenizer->encode("the");
  EXPECT_FALSE(conversation.answer(request).tokens.empty());
}

TEST(Conversation, DamagedAndForeignFilesAreRefused) {
  const LanguageModel model = small_language_model();
  Conversation conversation(model);
  conversation.answer(request_of(model, "the", 3, 5));
  const std::vector<std::byte> bytes = conversation.save();
  const auto refused = [&](const LanguageModel& by, std::span<const std::byte> saved,
                           std::initializer_list<std::string_view> mentions) {
    expect_error([&] { Conversation(by, saved, "talk.state"); }, mentions);
  };
  for (std::size_t place = 0; place < bytes.size(); place += 97) {
    auto damaged = bytes;
    damaged[place] ^= std::byte{16};
    refused(model, damaged, {"talk.state"});
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, bytes.size() / 2, bytes.size() - 1})
    refused(model, std::span(bytes).first(size), {"talk.state"});
  refused(small_language_model(small_language_options({"gla"})), bytes, {"talk.state", "it is of the model"});
  LanguageModel other = model;
  other.tokenizer = mhla::testing::tokenizer_of_bytes(mhla::testing::small_sentence_piece());
  refused(other, bytes, {"talk.state: it is of the tokenizer"});
}

}  // namespace
}  // namespace mhla::tasks
