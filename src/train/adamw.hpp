// AdamW with gradient clipping, in a few kernels for all parameters together and without waiting for the device.
#pragma once

#include <vector>

#include "train/parameters.hpp"

namespace mhla::train {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0.05;
  double clip = 0.0;  // largest norm of all gradients together; 0: no limit
};

class AdamW {
 public:
  AdamW(const std::vector<Parameter>& parameters, const AdamWOptions& options);

  // One update from the gradients there are; returns their norm before clipping, on the device. A step whose gradients
  // are not finite changes nothing and is counted.
  at::Tensor step(double learning_rate);

  at::Tensor skipped() const { return skipped_; }  // number of such steps, on the device
  NamedTensors state() const;                      // views: writing to them restores the optimiser

 private:
  struct Group {
    bool decays;
    double rate;
    std::vector<std::string> names;
    std::vector<at::Tensor> parameters, exp_avg, exp_avg_sq;
  };

  AdamWOptions options_;
  std::vector<Group> groups_;
  at::Tensor steps_, skipped_;
};

}  // namespace mhla::train
