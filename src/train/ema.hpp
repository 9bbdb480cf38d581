// Exponential moving average of a model's weights.
#pragma once

#include "train/parameters.hpp"

namespace mhla::train {

class Ema {
 public:
  Ema(const torch::nn::Module& model, double decay);

  // After step `step` (from 0). Early averages forget faster: the decay is at most (1 + step) / (10 + step).
  void update(std::int64_t step);

  // Exchanges the averages and the model's weights; a second call undoes it.
  void exchange();

  NamedTensors state() const;  // views: writing to them restores the average

 private:
  double decay_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> weights_, averages_;  // floating-point parameters and buffers
};

// The averaged weights are the model's for as long as this lives.
class EmaWeights {
 public:
  explicit EmaWeights(Ema* ema) : ema_(ema) {
    if (ema_ != nullptr) ema_->exchange();
  }
  ~EmaWeights() {
    if (ema_ != nullptr) ema_->exchange();
  }
  EmaWeights(const EmaWeights&) = delete;
  EmaWeights& operator=(const EmaWeights&) = delete;

 private:
  Ema* ema_;
};

}  // namespace mhla::train
