// The optimisation loop of every model: steps, logging, evaluation, checkpoints, resumption.
#pragma once

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "train/adamw.hpp"
#include "train/checkpoint.hpp"
#include "train/communicator.hpp"
#include "train/ema.hpp"
#include "train/gradient_buckets.hpp"
#include "train/run_lock.hpp"
#include "train/run_log.hpp"
#include "train/schedule.hpp"
#include "train/task.hpp"

namespace mhla::train {

struct TrainerOptions {
  std::filesystem::path out;  // folder of the run
  Schedule schedule;          // and with it the number of steps
  AdamWOptions adamw;
  std::int64_t accumulate = 1;  // batches per step
  double ema = 0.0;             // decay of the weight average, which is then evaluated; 0: none
  bool bf16 = false;
  std::uint64_t seed = 0;

  // In steps; 0: once an epoch.
  std::int64_t log_every = 50, evaluate_every = 0, checkpoint_every = 0;
  std::int64_t keep = 2;                     // checkpoints
  std::string resume = "auto";               // auto: from the newest checkpoint if there is one; none: start anew
  io::Json settings = io::Json::object();    // what a resumed run must agree on
  Facts about = {{"training", "Training"}};  // for the report; the first is its title
  std::string device_name{};                 // to know its peak
  std::ostream* text = &std::cout;
};

enum class Ending { finished, interrupted };

class Trainer {
 public:
  Trainer(Task& task, const TrainerOptions& options, Communicator& communicator);
  Ending run();

  std::int64_t steps_done() const { return step_; }
  const std::optional<double>& best_score() const { return best_; }

 private:
  using Clock = std::chrono::steady_clock;

  void say(const std::string& line) const;
  void take_folder();
  Facts memory_facts() const;
  NamedTensors state() const;
  at::Tensor read_checkpoint(NamedTensors& random);
  void resume();
  void check_settings(const Checkpoint& checkpoint) const;
  void train_step();
  void backward();
  void log();
  void evaluate();
  void save();
  bool due(std::int64_t interval) const;

  Task& task_;
  TrainerOptions options_;
  Communicator& communicator_;
  at::Device device_;
  std::vector<Parameter> parameters_;
  AdamW optimizer_;
  std::optional<Ema> ema_;
  std::unique_ptr<GradientBuckets> buckets_;  // with several processes
  CheckpointFolder checkpoints_;
  std::optional<RunLock> lock_;  // of rank 0, until the trainer is gone
  std::optional<RunLog> log_;    // of rank 0

  std::int64_t steps_per_epoch_;
  std::int64_t step_ = 0;
  std::optional<double> best_;
  at::Tensor loss_sum_, norm_;  // on the device
  std::int64_t logged_step_ = 0, logged_skips_ = 0;
  std::int64_t lost_steps_ = 0;  // in a row, without finite gradients
  Clock::time_point interval_start_;
  double seconds_ = 0.0;     // of training before the present interval
  double step_flops_ = 0.0;  // of all ranks
};

}  // namespace mhla::train
