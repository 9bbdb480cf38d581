// Continuous batching: one thread owns the model. Requests wait in a line, their prompts are read in pieces, and all
// sequences take their steps together; one may come or go at every step.
//
// In float32 on the CPU the answer to a request does not depend on what else is asked, to the last bit: it is that of
// generate().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tasks/language/answer_parts.hpp"
#include "tasks/language/running_rows.hpp"
#include "tasks/language/sampling.hpp"
#include "tasks/language/waiting_line.hpp"

namespace mhla::tasks {

struct SchedulerOptions {
  std::int64_t rows = 16;            // sequences that are answered together
  std::int64_t waiting = 128;        // sequences that may wait
  std::int64_t piece = 1024;         // tokens of prompts that are read between two steps
  std::int64_t vocabulary = 0;       // tokens below this one are drawn; 0: all the model knows
  std::optional<text::Token> end{};  // the token that ends an answer; it is not part of it
};

struct AnswerRequest {
  std::vector<text::Token> prompt;  // prompt_tokens() of a text
  std::int64_t tokens = 16;         // of the answer, at most
  SamplingOptions sampling{};
  std::uint64_t sequence = 0;  // a draw depends on (sampling.seed, sequence, position)
  bool past_end = false;       // the end token does not end the answer
  std::shared_ptr<AnswerListener> listener;
};

class Scheduler {
 public:
  Scheduler(std::shared_ptr<models::Lm> model, const SchedulerOptions& options);
  ~Scheduler();  // ends what is left
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // All of them or none. Throws an Error that names the first thing that cannot be.
  Admission submit(std::vector<AnswerRequest> requests);

  // Takes no more requests and returns when all answers have ended: by themselves within this time, else with `abort`.
  void finish(std::chrono::milliseconds grace);

 private:
  struct Running;
  struct Reading;

  void work();
  void read_prompts();
  bool read_piece(Reading& reading, std::int64_t& budget);
  void place(Reading& reading, const at::Tensor& logits);
  void leave_out_who_is_gone();
  void step();
  bool draw(Running& running, const at::Tensor& logits);
  void leave(std::size_t row);
  static void end(const Running& running, AnswerFinish finish, const std::string& error = "");
  void end_all(AnswerFinish finish);

  const std::shared_ptr<models::Lm> model_;
  const SchedulerOptions options_;
  const int threads_;
  WaitingLine<AnswerRequest> line_;
  std::atomic<bool> stopping_ = false;
  std::chrono::steady_clock::time_point deadline_;

  // Of the thread.
  RunningRows rows_;
  std::vector<std::unique_ptr<Running>> running_;  // by row
  std::unique_ptr<Reading> reading_;

  std::thread thread_;
};

}  // namespace mhla::tasks
