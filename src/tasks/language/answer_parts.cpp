// One lock for all answers of a request; text is made where tokens are taken.
#include "tasks/language/answer_parts.hpp"

#include <array>
#include <utility>

namespace mhla::tasks {
namespace {

constexpr std::array<std::string_view, 4> kFinishNames = {"stop", "length", "abort", "error"};

}  // namespace

std::string_view name(AnswerFinish value) { return kFinishNames.at(static_cast<std::size_t>(value)); }

class AnswerParts::Listener : public AnswerListener {
 public:
  Listener(std::shared_ptr<AnswerParts> parts, std::size_t answer) : parts_(std::move(parts)), answer_(answer) {}
  bool take(text::Token token) override { return parts_->take(answer_, token); }
  void end(AnswerFinish finish, const std::string& error) override { parts_->end(answer_, finish, error); }
  bool gone() const override { return parts_->gone_; }

 private:
  std::shared_ptr<AnswerParts> parts_;
  std::size_t answer_;
};

AnswerParts::AnswerParts(const text::Tokenizer& tokenizer, std::size_t answers, const std::vector<std::string>& stop)
    : texts_(answers, AnswerText(tokenizer, stop)), unfinished_(answers) {}

std::shared_ptr<AnswerListener> AnswerParts::listener(const std::shared_ptr<AnswerParts>& parts, std::size_t answer) {
  return std::make_shared<Listener>(parts, answer);
}

std::vector<AnswerPart> AnswerParts::wait(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, at_most, [&] { return !parts_.empty() || unfinished_ == 0; });
  return std::exchange(parts_, {});
}

bool AnswerParts::finished() const {
  const std::scoped_lock lock(mutex_);
  return unfinished_ == 0 && parts_.empty();
}

std::int64_t AnswerParts::tokens() const {
  const std::scoped_lock lock(mutex_);
  return tokens_;
}

bool AnswerParts::take(std::size_t answer, text::Token token) {
  bool goes_on = false;
  {
    const std::scoped_lock lock(mutex_);
    ++tokens_;
    std::string text = texts_[answer].add(token);
    goes_on = !texts_[answer].stopped();
    if (!text.empty()) parts_.push_back({.answer = answer, .text = std::move(text)});
  }
  arrived_.notify_one();
  return goes_on;
}

void AnswerParts::end(std::size_t answer, AnswerFinish finish, const std::string& error) {
  {
    const std::scoped_lock lock(mutex_);
    // A stop string may be complete only with what a character had to wait for.
    std::string text = texts_[answer].finish();
    if (finish == AnswerFinish::length && texts_[answer].stopped()) finish = AnswerFinish::stop;
    parts_.push_back({.answer = answer, .text = std::move(text), .finish = finish, .error = error});
    --unfinished_;
  }
  arrived_.notify_one();
}

}  // namespace mhla::tasks
