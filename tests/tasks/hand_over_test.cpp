// What the threads of a server hand to each other. Without torch: ThreadSanitizer watches these tests.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "support/small_tokenizers.hpp"
#include "tasks/language/answer_parts.hpp"
#include "tasks/language/waiting_line.hpp"

namespace mhla::tasks {
namespace {

using namespace std::chrono_literals;

std::shared_ptr<const text::Tokenizer> small_tokenizer() {
  const std::string json = testing::small_tokenizer_json();
  return text::read_tokenizer(std::as_bytes(std::span(json)), "test");
}

TEST(WaitingLine, ServesFirstWhatCameFirstAndTakesAllOrNone) {
  WaitingLine<int> line(3);
  EXPECT_EQ(line.push({1, 2}), Admission::taken);
  EXPECT_EQ(line.push({3, 4}), Admission::full);
  EXPECT_EQ(line.push({5}), Admission::taken);
  for (const int right : {1, 2, 5}) EXPECT_EQ(line.pop(), right);
  EXPECT_EQ(line.pop(), std::nullopt);
}

TEST(WaitingLine, AfterTheEndNothingComesButWhatWaitsIsThere) {
  WaitingLine<int> line(3);
  line.push({1});
  line.close();
  EXPECT_EQ(line.push({2}), Admission::closed);
  EXPECT_TRUE(line.wait());
  EXPECT_EQ(line.pop(), 1);
  EXPECT_FALSE(line.wait());
}

TEST(WaitingLine, NothingIsLostBetweenThreads) {
  constexpr int kSenders = 4, kEach = 500;
  WaitingLine<int> line(8);
  std::set<int> received;
  std::thread receiver([&] {
    while (line.wait())
      while (const auto item = line.pop()) received.insert(*item);
  });
  std::vector<std::thread> senders;
  for (int sender = 0; sender < kSenders; ++sender)
    senders.emplace_back([&line, sender] {
      for (int item = 0; item < kEach; ++item)
        while (line.push({sender * kEach + item}) == Admission::full) std::this_thread::yield();
    });
  for (std::thread& sender : senders) sender.join();
  line.close();
  receiver.join();
  EXPECT_EQ(received.size(), kSenders * kEach);
}

TEST(AnswerParts, TextOfSeveralAnswersArrivesWholeFromAnotherThread) {
  const auto tokenizer = small_tokenizer();
  const std::string words = "then the cat \xC3\xA9t\xC3\xA9 ";
  const std::vector<text::Token> tokens = tokenizer->encode(words);
  constexpr std::size_t kAnswers = 3;
  constexpr int kRounds = 50;
  const auto parts = std::make_shared<AnswerParts>(*tokenizer, kAnswers, std::vector<std::string>{});
  std::thread scheduler([&] {
    std::vector<std::shared_ptr<AnswerListener>> listeners;
    for (std::size_t answer = 0; answer < kAnswers; ++answer) listeners.push_back(AnswerParts::listener(parts, answer));
    for (int round = 0; round < kRounds; ++round)
      for (const text::Token token : tokens)
        for (const auto& listener : listeners) EXPECT_TRUE(listener->take(token));
    for (const auto& listener : listeners) listener->end(AnswerFinish::length, "");
  });
  std::vector<std::string> texts(kAnswers);
  std::size_t ended = 0;
  while (!parts->finished())
    for (const AnswerPart& part : parts->wait(1s)) {
      texts[part.answer] += part.text;
      ended += part.finish == AnswerFinish::length ? 1 : 0;
    }
  scheduler.join();
  std::string right;
  for (int round = 0; round < kRounds; ++round) right += words;
  for (const std::string& text : texts) EXPECT_EQ(text, right);
  EXPECT_EQ(ended, kAnswers);
  EXPECT_EQ(parts->tokens(), std::ssize(tokens) * kRounds * static_cast<std::int64_t>(kAnswers));
}

TEST(AnswerParts, AStopStringEndsItsAnswerAndNotTheOthers) {
  const auto tokenizer = small_tokenizer();
  const auto parts = std::make_shared<AnswerParts>(*tokenizer, 2, std::vector<std::string>{"x y"});
  const auto first = AnswerParts::listener(parts, 0), second = AnswerParts::listener(parts, 1);
  const auto take = [&](AnswerListener& listener, const std::string& text) {
    bool goes_on = true;
    for (const text::Token token : tokenizer->encode(text)) goes_on = listener.take(token);
    return goes_on;
  };
  EXPECT_TRUE(take(*first, "a x"));
  EXPECT_TRUE(take(*second, "a x"));
  EXPECT_FALSE(take(*first, " y"));
  EXPECT_TRUE(take(*second, " z"));
  first->end(AnswerFinish::stop, "");
  second->end(AnswerFinish::length, "");
  std::vector<std::string> texts(2);
  for (const AnswerPart& part : parts->wait(0ms)) texts[part.answer] += part.text;
  EXPECT_EQ(texts, (std::vector<std::string>{"a ", "a x z"}));
}

TEST(AnswerParts, WhoHangsUpIsGoneForTheScheduler) {
  const auto tokenizer = small_tokenizer();
  const auto parts = std::make_shared<AnswerParts>(*tokenizer, 1, std::vector<std::string>{});
  const auto listener = AnswerParts::listener(parts, 0);
  EXPECT_FALSE(listener->gone());
  parts->cancel();
  EXPECT_TRUE(listener->gone());
}

}  // namespace
}  // namespace mhla::tasks
