// A draw for every row, then a step of those that go on.
#include "tasks/language/answering.hpp"

#include <chrono>
#include <utility>

namespace mhla::tasks {

void SequenceTokens::add(text::Token token) {
  ++count_;
  const auto place = static_cast<std::size_t>(token);
  if (known_[place]) return;
  known_[place] = true;
  different_.push_back(token);
}

Answering::Answering(const LanguageModel& model, const GenerationRequest& request, SequenceTokens before)
    : model_(model), request_(request), tokens_(std::move(before)), text_(*model.tokenizer, request.stop) {}

bool Answering::draw(std::span<const float> logits) {
  const text::Tokenizer& tokenizer = *model_.tokenizer;
  const auto words = static_cast<std::size_t>(tokenizer.size());  // a model may have more, which stand for nothing
  const auto token = static_cast<text::Token>(sample_token(logits.first(words), request_.sampling,
                                                           {.sequence = request_.sequence, .position = tokens_.count()},
                                                           tokens_.different()));
  if (!request_.past_end && tokenizer.special().end == token) {
    end(AnswerEnd::end_token);
    return false;
  }
  tokens_.add(token);
  answer_.tokens.push_back(token);
  fresh_ += text_.add(token);
  if (text_.stopped())
    end(AnswerEnd::stop);
  else if (std::ssize(answer_.tokens) == request_.tokens)
    end(AnswerEnd::length);
  return !ended_;
}

void Answering::end(AnswerEnd why) {
  if (ended_) return;
  fresh_ += text_.finish();
  answer_.end = text_.stopped() ? AnswerEnd::stop : why;
  ended_ = true;
}

namespace {

class AnsweringBatch {
 public:
  AnsweringBatch(const LanguageModel& model, models::LmState& state, at::Tensor logits, std::span<Answering> rows,
                 const GenerationWatch& watch)
      : model_(model), state_(state), logits_(std::move(logits)), rows_(rows), watch_(watch) {
    for (std::size_t row = 0; row < rows.size(); ++row) running_.push_back(row);
  }

  std::size_t running() const { return running_.size(); }

  // False: all have ended.
  bool step() {
    draw();
    if (running_.empty()) return false;
    std::vector<std::int64_t> ids;
    ids.reserve(running_.size());
    for (const std::size_t row : running_) ids.push_back(rows_[row].last());
    logits_ = model_.model->step(state_, torch::tensor(ids, at::kLong));
    return true;
  }

 private:
  void draw() {
    const at::Tensor values = logits_.to(at::kCPU, at::kFloat).contiguous();
    const auto words = static_cast<std::size_t>(values.size(1));
    bool wanted = true;
    std::vector<std::int64_t> left;  // places in the state
    std::vector<std::size_t> running;
    for (std::size_t place = 0; place < running_.size(); ++place) {
      Answering& row = rows_[running_[place]];
      if (row.draw({values.const_data_ptr<float>() + place * words, words})) {
        left.push_back(static_cast<std::int64_t>(place));
        running.push_back(running_[place]);
      }
      wanted = say(running_[place]) && wanted;
    }
    if (!wanted) {
      for (const std::size_t row : running) {
        rows_[row].interrupt();
        say(row);
      }
      running.clear();
    }
    if (!running.empty() && running.size() < running_.size()) state_ = state_.rows(left);
    running_ = std::move(running);
  }

  bool say(std::size_t row) {
    const std::string text = rows_[row].fresh();
    rows_[row].answer().text += text;
    return !watch_.say || watch_.say(row, text);
  }

  const LanguageModel& model_;
  models::LmState& state_;
  at::Tensor logits_;
  std::span<Answering> rows_;
  const GenerationWatch& watch_;
  std::vector<std::size_t> running_;  // row of each place in the state
};

}  // namespace

void answer_all(const LanguageModel& model, models::LmState& state, at::Tensor logits, std::span<Answering> rows,
                const GenerationWatch& watch, GenerationTimes* times) {
  using Clock = std::chrono::steady_clock;
  AnsweringBatch batch(model, state, std::move(logits), rows, watch);
  for (bool more = true; more;) {
    const auto start = Clock::now();
    const std::size_t tokens = batch.running();
    more = batch.step();
    if (times != nullptr)
      times->add_step(tokens, std::chrono::duration<double>(Clock::now() - start).count(), state.bytes());
  }
}

}  // namespace mhla::tasks
