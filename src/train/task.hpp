// What a training run is about. The trainer knows steps, schedules and files; a task knows the model, its data and its
// loss.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mhla::train {

struct Evaluation {
  std::optional<double> score;                          // the higher, the better; none: the newest is the best
  std::vector<std::pair<std::string, double>> numbers;  // "val/top1", ...
  std::vector<std::byte> picture{};                     // a PNG to look at, of the first rank; empty: none
  std::string text{};                                   // to read, of the first rank; empty: none
};

class Task {
 public:
  virtual ~Task() = default;

  virtual torch::nn::Module& model() = 0;
  virtual bool decays(const std::string& /*parameter*/) const { return true; }  // vectors never do
  virtual double rate(const std::string& /*parameter*/) const { return 1.0; }   // times the learning rate
  virtual void after_step() {}  // brings parameters back to the values the model allows

  virtual std::string unit() const = 0;      // what samples are called: "images"
  virtual std::int64_t samples() const = 0;  // of one batch, over all ranks
  virtual std::int64_t batches() const = 0;  // of one epoch

  // Batches of a run are a function of (epoch, batch): the next is `first_batch` of `epoch`.
  virtual void start(std::int64_t epoch, std::int64_t first_batch) = 0;

  // Loss of the next batch with its graph. Summed over the ranks it is the mean loss of the batch.
  virtual at::Tensor loss() = 0;

  virtual Evaluation evaluate() = 0;                         // called by every rank, the same on every rank
  virtual void save_best(const Evaluation& evaluation) = 0;  // called by rank 0: the weights scored highest so far
};

}  // namespace mhla::train
