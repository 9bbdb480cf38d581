// Continuous batching: the answer to a request is what it would be alone, whoever comes and goes.
#include "tasks/language/scheduler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <future>
#include <limits>
#include <random>

#include "support/expect_error.hpp"
#include "support/small_language_model.hpp"
#include "tasks/language/generation.hpp"

namespace mhla::tasks {
namespace {

using namespace std::chrono_literals;

using Tokens = std::vector<text::Token>;

struct Outcome {
  Tokens tokens;
  AnswerFinish finish = AnswerFinish::error;
  std::string error;
};

// Collects one answer; it may have enough after some tokens, or hang up.
class Collector : public AnswerListener {
 public:
  bool take(text::Token token) override {
    outcome_.tokens.push_back(token);
    if (std::ssize(outcome_.tokens) == hang_up_after) gone_ = true;
    if (on_token) on_token();
    return std::ssize(outcome_.tokens) != enough;
  }
  void end(AnswerFinish finish, const std::string& error) override {
    outcome_.finish = finish;
    outcome_.error = error;
    ended_.set_value(outcome_);
  }
  bool gone() const override { return gone_; }

  Outcome outcome() { return future_.get(); }

  std::int64_t enough = -1, hang_up_after = -1;
  std::function<void()> on_token;

 private:
  Outcome outcome_;
  std::atomic<bool> gone_ = false;
  std::promise<Outcome> ended_;
  std::future<Outcome> future_ = ended_.get_future();
};

std::shared_ptr<models::Lm> small_model(const std::vector<std::string>& attention = {"mhla"},
                                        const std::string& beyond = "error") {
  torch::manual_seed(17);
  models::LmOptions options;
  options.model = "lm_tiny";
  options.attention = attention;
  options.vocabulary = 61;
  options.width = 32;
  options.depth = 2;
  options.heads = 2;
  options.mlp_width = 64;
  options.block_size = 8;
  options.blocks = 16;
  options.beyond = beyond;
  auto model = std::make_shared<models::Lm>(options);
  model->eval();
  const torch::NoGradGuard no_gradient;
  for (at::Tensor& parameter : model->parameters())
    if (parameter.dim() == 2) parameter.mul_(8.0);  // logits that differ
  return model;
}

AnswerRequest request_of(std::mt19937& random) {
  AnswerRequest request;
  const auto below = [&](std::uint32_t limit) { return static_cast<std::int64_t>(random() % limit); };
  for (std::int64_t count = 1 + below(60); count > 0; --count)
    request.prompt.push_back(static_cast<text::Token>(below(61)));
  request.tokens = 1 + below(40);
  constexpr std::array<double, 3> kTemperatures = {0.0, 0.7, 1.3};
  request.sampling = {.repetition_penalty = below(2) == 0 ? 1.0 : 1.2,
                      .temperature = kTemperatures[static_cast<std::size_t>(below(3))],
                      .top_k = below(2) * 20,
                      .seed = static_cast<std::uint64_t>(below(1000))};
  request.sequence = static_cast<std::uint64_t>(below(3));
  return request;
}

std::shared_ptr<Collector> submitted(Scheduler& scheduler, AnswerRequest request, std::int64_t hang_up_after = -1) {
  auto collector = std::make_shared<Collector>();
  collector->hang_up_after = hang_up_after;
  request.listener = collector;
  if (scheduler.submit({std::move(request)}) != Admission::taken) throw Error("the scheduler is full");
  return collector;
}

AnswerRequest plain_request(std::int64_t prompt, std::int64_t tokens) {
  AnswerRequest request;
  request.prompt.assign(static_cast<std::size_t>(prompt), 5);
  request.tokens = tokens;
  return request;
}

// Every request alone, then all of them twice in other orders, among others that hang up.
void expect_answers_as_alone(const std::vector<std::string>& attention, const std::string& beyond, unsigned seed) {
  Scheduler scheduler(small_model(attention, beyond), {.rows = 20, .waiting = 100, .piece = 16});
  std::mt19937 random(seed);
  std::vector<std::pair<AnswerRequest, Tokens>> requests;
  for (int i = 0; i < 40; ++i) {
    const AnswerRequest request = request_of(random);
    const Outcome outcome = submitted(scheduler, request)->outcome();
    EXPECT_EQ(outcome.finish, AnswerFinish::length);
    EXPECT_EQ(std::ssize(outcome.tokens), request.tokens);
    requests.emplace_back(request, outcome.tokens);
  }
  for (int round = 0; round < 2; ++round) {
    std::ranges::shuffle(requests, random);
    std::vector<std::shared_ptr<Collector>> wanted, leaving;
    for (const auto& [request, alone] : requests) {
      wanted.push_back(submitted(scheduler, request));
      leaving.push_back(submitted(scheduler, request_of(random), /*hang_up_after=*/1 + round));
    }
    for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(wanted[i]->outcome().tokens, requests[i].second);
    for (const auto& one : leaving) one->outcome();
  }
}

TEST(RunningRows, ARowHasTheBitsItHasAloneWhoeverComesAndGoes) {
  for (const char* attention : {"mhla", "gla", "softmax"}) {
    const auto model = small_model({attention}, "interpolate");
    const torch::NoGradGuard no_gradient;
    std::mt19937 random(7);
    RunningRows rows(model);
    std::vector<models::LmState> alone;
    for (int turn = 0; turn < 30; ++turn) {
      if (rows.count() < 6 && random() % 2 == 0) {
        alone.push_back(model->new_state(1));
        const auto length = static_cast<std::int64_t>(1 + random() % 90);
        model->prefill(alone.back(), torch::randint(0, 61, {1, length}, at::kLong));
        rows.add(alone.back());
      }
      if (rows.count() > 0 && random() % 5 == 0) {
        const auto row = static_cast<std::int64_t>(random() % alone.size());
        rows.remove(row);
        std::swap(alone[static_cast<std::size_t>(row)], alone.back());
        alone.pop_back();
      }
      if (rows.count() == 0) continue;
      const at::Tensor ids = torch::randint(0, 61, {rows.count()}, at::kLong), together = rows.step(ids);
      for (std::int64_t row = 0; row < rows.count(); ++row)
        EXPECT_TRUE(
            model->step(alone[static_cast<std::size_t>(row)], ids.narrow(0, row, 1)).equal(together.narrow(0, row, 1)))
            << attention << ", turn " << turn << ", row " << row << " of " << rows.count();
    }
  }
}

TEST(Scheduler, AnswersAreThoseOfTheRequestAlone) { expect_answers_as_alone({"mhla"}, "error", 1); }

TEST(Scheduler, AnswersOfOtherAttentionAreThoseOfTheRequestAlone) {
  expect_answers_as_alone({"linear", "gla"}, "error", 2);
  expect_answers_as_alone({"softmax", "mhla"}, "running-mean", 3);
}

TEST(Scheduler, AnswersAreThoseOfGenerate) {
  const LanguageModel model = testing::small_language_model();
  Scheduler scheduler(model.model, {.vocabulary = model.tokenizer->size(), .end = model.tokenizer->special().end});
  std::vector<std::shared_ptr<Collector>> collectors;
  std::vector<GenerationRequest> requests;
  std::mt19937 random(4);
  for (int i = 0; i < 12; ++i) {
    const AnswerRequest request = request_of(random);
    collectors.push_back(submitted(scheduler, request));
    requests.push_back({.prompt = request.prompt,
                        .tokens = request.tokens,
                        .sampling = request.sampling,
                        .sequence = request.sequence,
                        .stop = {}});
  }
  const std::vector<Answer> answers = generate(model, requests);
  for (std::size_t i = 0; i < answers.size(); ++i) EXPECT_EQ(collectors[i]->outcome().tokens, answers[i].tokens);
}

TEST(Scheduler, AnAnswerEndsAtTheEndTokenOrWhenItsListenerHasEnough) {
  const auto model = small_model();
  Scheduler plain(model, {});
  const Outcome whole = submitted(plain, plain_request(4, 30))->outcome();
  AnswerRequest enough = plain_request(4, 30);
  auto collector = std::make_shared<Collector>();
  collector->enough = 3;
  enough.listener = collector;
  ASSERT_EQ(plain.submit({enough}), Admission::taken);
  const Outcome cut = collector->outcome();
  EXPECT_EQ(cut.finish, AnswerFinish::stop);
  EXPECT_EQ(cut.tokens, Tokens(whole.tokens.begin(), whole.tokens.begin() + 3));

  Scheduler ending(model, {.end = whole.tokens[5]});
  const Outcome ended = submitted(ending, plain_request(4, 30))->outcome();
  const auto first = std::ranges::find(whole.tokens, whole.tokens[5]);
  EXPECT_EQ(ended.finish, AnswerFinish::stop);
  EXPECT_EQ(ended.tokens, Tokens(whole.tokens.begin(), first));
}

TEST(Scheduler, TokensPastTheVocabularyOfTheTokenizerAreNotDrawn) {
  Scheduler scheduler(small_model(), {.vocabulary = 7});
  for (const text::Token token : submitted(scheduler, plain_request(3, 60))->outcome().tokens) EXPECT_LT(token, 7);
}

TEST(Scheduler, ShortRequestsAreAnsweredWhileALongOneIsRead) {
  Scheduler scheduler(small_model({"mhla"}, "running-mean"), {.rows = 9, .piece = 8});
  const auto first = submitted(scheduler, plain_request(1, 50));
  auto whole = std::make_shared<Collector>();
  std::atomic<int> answered = 0;
  first->on_token = [&] { ++answered; };
  int answered_before = 0;
  whole->on_token = [&] {
    if (answered_before == 0) answered_before = answered;
  };
  AnswerRequest reading = plain_request(160, 1);  // 20 pieces
  reading.listener = whole;
  ASSERT_EQ(scheduler.submit({reading}), Admission::taken);
  whole->outcome();
  first->outcome();
  EXPECT_GE(answered_before, 19);
}

TEST(Scheduler, RequestsBeginInTheOrderInWhichTheyCame) {
  Scheduler scheduler(small_model(), {.rows = 2, .waiting = 32});
  std::mutex mutex;
  std::vector<int> begun;
  std::vector<AnswerRequest> requests;
  std::vector<std::shared_ptr<Collector>> collectors;
  for (int i = 0; i < 20; ++i) {
    auto collector = std::make_shared<Collector>();
    collector->on_token = [&, i, first = true]() mutable {
      const std::scoped_lock lock(mutex);
      if (std::exchange(first, false)) begun.push_back(i);
    };
    requests.push_back(plain_request(1 + 3 * (i % 7), 1 + i % 5));
    requests.back().listener = collector;
    collectors.push_back(collector);
  }
  ASSERT_EQ(scheduler.submit(requests), Admission::taken);
  for (const auto& collector : collectors) collector->outcome();
  EXPECT_TRUE(std::ranges::is_sorted(begun));
  EXPECT_EQ(begun.size(), 20);
}

TEST(Scheduler, TakesAllRequestsOrNone) {
  Scheduler scheduler(small_model(), {.rows = 1, .waiting = 4});
  std::vector<AnswerRequest> five(5, plain_request(1, 1));
  for (AnswerRequest& request : five) request.listener = std::make_shared<Collector>();
  EXPECT_EQ(scheduler.submit(five), Admission::full);
}

TEST(Scheduler, FinishEndsWhatDoesNotEndByItself) {
  Scheduler scheduler(small_model({"mhla"}, "running-mean"), {.rows = 2});
  std::vector<std::shared_ptr<Collector>> collectors;
  for (int i = 0; i < 5; ++i) collectors.push_back(submitted(scheduler, plain_request(3, 1'000'000'000)));
  scheduler.finish(0ms);
  for (const auto& collector : collectors) EXPECT_EQ(collector->outcome().finish, AnswerFinish::abort);
  auto late = plain_request(1, 1);
  late.listener = std::make_shared<Collector>();
  EXPECT_EQ(scheduler.submit({late}), Admission::closed);
}

TEST(Scheduler, FinishLetsAnswersEndByThemselves) {
  Scheduler scheduler(small_model(), {.rows = 2});
  std::vector<std::shared_ptr<Collector>> collectors;
  for (int i = 0; i < 5; ++i) collectors.push_back(submitted(scheduler, plain_request(3, 10)));
  scheduler.finish(1h);
  for (const auto& collector : collectors) EXPECT_EQ(collector->outcome().finish, AnswerFinish::length);
}

TEST(Scheduler, WhatCannotBeIsRefusedByName) {
  Scheduler scheduler(small_model(), {});  // 128 tokens
  const auto refused = [&](AnswerRequest request, std::string_view message) {
    request.listener = std::make_shared<Collector>();
    expect_error([&] { scheduler.submit({request}); }, {message});
  };
  refused(plain_request(0, 1), "prompt is empty; it must have at least one token");
  refused(plain_request(129, 1), "prompt and answer have 129 + 1 tokens; this model reads at most 128");
  refused(plain_request(100, 30), "prompt and answer have 100 + 30 tokens; this model reads at most 128");
  refused(plain_request(1, 0), "tokens is 0; it must be at least 1");
  AnswerRequest unknown = plain_request(2, 1);
  unknown.prompt[1] = 61;
  refused(unknown, "prompt has the token 61; tokens may be 0 to 60");
  unknown = plain_request(2, 1);
  unknown.sampling.top_p = 0.0;
  refused(unknown, "top_p is 0");
}

TEST(Scheduler, AModelThatGivesNoNumbersEndsTheAnswerAndNotTheScheduler) {
  const auto model = small_model();
  Scheduler scheduler(model, {});
  const torch::NoGradGuard no_gradient;
  const at::Tensor weight = model->output_weight(), kept = weight.clone();
  weight.fill_(std::numeric_limits<float>::quiet_NaN());
  const Outcome outcome = submitted(scheduler, plain_request(2, 3))->outcome();
  EXPECT_EQ(outcome.finish, AnswerFinish::error);
  EXPECT_NE(outcome.error.find("nan"), std::string::npos) << outcome.error;
  weight.copy_(kept);
  EXPECT_EQ(submitted(scheduler, plain_request(2, 3))->outcome().tokens.size(), 3);
}

}  // namespace
}  // namespace mhla::tasks
