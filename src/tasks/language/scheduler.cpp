// A prompt is always read in the same pieces, which are those of generate().
#include "tasks/language/scheduler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <span>
#include <utility>

#include "mhla/types.hpp"
#include "tasks/language/answering.hpp"

namespace mhla::tasks {

// A sequence with its answer so far.
struct Scheduler::Running {
  AnswerRequest request;
  SequenceTokens tokens;  // of prompt and answer
  text::Token last = 0;
  std::int64_t drawn = 0;
};

// The prompt that is being read.
struct Scheduler::Reading {
  std::unique_ptr<Running> running;
  std::optional<models::LmState> state{};
  std::int64_t read = 0;
};

Scheduler::Scheduler(std::shared_ptr<models::Lm> model, const SchedulerOptions& options)
    : model_(std::move(model)), options_(options), threads_(at::get_num_threads()),
      line_(static_cast<std::size_t>(options.waiting)), rows_(model_) {
  if (options.rows < 1 || options.waiting < 1 || options.piece < 1)
    throw Error(fmt::format("rows is {}, waiting is {} and piece is {}; they must be at least 1", options.rows,
                            options.waiting, options.piece));
  thread_ = std::thread([this] { work(); });
}

Scheduler::~Scheduler() { finish(std::chrono::milliseconds(0)); }

Admission Scheduler::submit(std::vector<AnswerRequest> requests) {
  const std::int64_t vocabulary = model_->options.vocabulary, longest = longest_sequence(*model_);
  for (const AnswerRequest& request : requests) {
    check(request.sampling);
    if (request.prompt.empty()) throw Error("prompt is empty; it must have at least one token");
    for (const text::Token id : request.prompt)
      if (id < 0 || id >= vocabulary)
        throw Error(fmt::format("prompt has the token {}; tokens may be 0 to {}", id, vocabulary - 1));
    if (request.tokens < 1) throw Error(fmt::format("tokens is {}; it must be at least 1", request.tokens));
    const std::int64_t prompt = std::ssize(request.prompt);
    if (prompt > longest || request.tokens - 1 > longest - prompt)  // the last token need not be read
      throw Error(fmt::format("prompt and answer have {} + {} tokens; this model reads at most {}", prompt,
                              request.tokens, longest));
    if (request.listener == nullptr) throw Error("listener is missing");
  }
  return line_.push(std::move(requests));
}

void Scheduler::finish(std::chrono::milliseconds grace) {
  if (!thread_.joinable()) return;
  deadline_ = std::chrono::steady_clock::now() + grace;
  stopping_ = true;
  line_.close();
  thread_.join();
}

void Scheduler::work() {
  at::set_num_threads(threads_);  // torch counts them for each thread that calls it
  const torch::NoGradGuard no_gradient;
  while (reading_ != nullptr || !running_.empty() || line_.wait()) {
    if (stopping_ && std::chrono::steady_clock::now() >= deadline_) return end_all(AnswerFinish::abort);
    read_prompts();
    leave_out_who_is_gone();
    if (!running_.empty()) step();
  }
}

void Scheduler::read_prompts() {
  for (std::int64_t budget = options_.piece; budget > 0;) {
    if (reading_ == nullptr) {
      if (std::ssize(running_) == options_.rows) return;
      std::optional<AnswerRequest> request = line_.pop();
      if (!request) return;
      auto running =
          std::make_unique<Running>(Running{*std::move(request), SequenceTokens(model_->options.vocabulary)});
      running->tokens.add(running->request.prompt);
      if (running->request.listener->gone()) {
        end(*running, AnswerFinish::abort);
        continue;
      }
      reading_ = std::make_unique<Reading>(Reading{.running = std::move(running)});
    }
    try {
      if (!read_piece(*reading_, budget)) return;
    } catch (const std::exception& error) {
      end(*reading_->running, AnswerFinish::error, error.what());
      reading_.reset();
    }
  }
}

// False where its next piece must wait for the next turn. Where a piece begins and ends depends on the prompt alone.
bool Scheduler::read_piece(Reading& reading, std::int64_t& budget) {
  const std::vector<text::Token>& prompt = reading.running->request.prompt;
  const std::int64_t count = std::min(options_.piece, std::ssize(prompt) - reading.read);
  if (count > budget) return false;
  if (reading.running->request.listener->gone()) {
    end(*reading.running, AnswerFinish::abort);
    reading_.reset();
    return true;
  }
  budget -= count;
  if (!reading.state) reading.state = model_->new_state(1);
  const at::Tensor ids =
      torch::tensor(std::vector<std::int64_t>(prompt.begin() + reading.read, prompt.begin() + reading.read + count),
                    at::kLong)
          .unsqueeze(0);
  reading.read += count;
  if (reading.read < std::ssize(prompt)) {
    model_->extend(*reading.state, ids);
    return true;
  }
  place(reading, model_->prefill(*reading.state, ids));
  reading_.reset();
  return true;
}

void Scheduler::place(Reading& reading, const at::Tensor& logits) {
  if (!draw(*reading.running, logits.to(at::kCPU, at::kFloat)[0].contiguous())) return;
  rows_.add(*reading.state);
  running_.push_back(std::move(reading.running));
}

void Scheduler::leave_out_who_is_gone() {
  for (std::size_t row = running_.size(); row-- > 0;)
    if (running_[row]->request.listener->gone()) {
      end(*running_[row], AnswerFinish::abort);
      leave(row);
    }
}

void Scheduler::step() {
  std::vector<std::int64_t> ids;
  ids.reserve(running_.size());
  for (const auto& running : running_) ids.push_back(running->last);
  try {
    const at::Tensor logits = rows_.step(torch::tensor(ids, at::kLong)).to(at::kCPU, at::kFloat).contiguous();
    for (std::size_t row = running_.size(); row-- > 0;)  // the row that takes a free place has drawn already
      if (!draw(*running_[row], logits[static_cast<std::int64_t>(row)])) leave(row);
  } catch (const std::exception& error) {  // what the rows have seen is not certain any more
    for (const auto& running : running_) end(*running, AnswerFinish::error, error.what());
    running_.clear();
    rows_ = RunningRows(model_);
  }
}

void Scheduler::leave(std::size_t row) {
  std::swap(running_[row], running_.back());
  running_.pop_back();
  rows_.remove(static_cast<std::int64_t>(row));
}

// The next token of a sequence; false: its answer has ended.
bool Scheduler::draw(Running& running, const at::Tensor& logits) {
  const AnswerRequest& request = running.request;
  const std::int64_t known = options_.vocabulary > 0 ? std::min(options_.vocabulary, logits.numel()) : logits.numel();
  try {
    running.last = static_cast<text::Token>(
        sample_token({logits.const_data_ptr<float>(), static_cast<std::size_t>(known)}, request.sampling,
                     {.sequence = request.sequence, .position = running.tokens.count()}, running.tokens.different()));
  } catch (const Error& error) {
    end(running, AnswerFinish::error, error.what());
    return false;
  }
  if (!request.past_end && running.last == options_.end) {
    end(running, AnswerFinish::stop);
    return false;
  }
  running.tokens.add(running.last);
  ++running.drawn;
  if (!request.listener->take(running.last))
    end(running, AnswerFinish::stop);
  else if (running.drawn == request.tokens)
    end(running, AnswerFinish::length);
  else
    return true;
  return false;
}

void Scheduler::end(const Running& running, AnswerFinish finish, const std::string& error) {
  running.request.listener->end(finish, error);
}

void Scheduler::end_all(AnswerFinish finish) {
  if (reading_ != nullptr) end(*reading_->running, finish);
  for (const auto& running : running_) end(*running, finish);
  while (std::optional<AnswerRequest> request = line_.pop()) request->listener->end(finish, "");
}

}  // namespace mhla::tasks
