// What every training run can be told. Options that are not given take their values from the task's recipe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mhla::tasks {

struct TrainingOptions {
  std::string data, out = "out/train", init;

  std::optional<double> lr, min_lr, weight_decay, clip, ema;
  std::optional<std::int64_t> batch, warmup;
  double mixing_lr = 1.0;  // relative to lr
  std::string schedule = "cosine";
  std::int64_t accumulate = 1;

  std::string cache = "auto";
  std::uint64_t seed = 0;
  std::string device = "auto", amp = "auto", resume = "auto";
  int threads = 0, workers = 0;
  std::int64_t log_every = 50, eval_every = 0, checkpoint_every = 0, keep = 2;
  bool half = false;
};

}  // namespace mhla::tasks
