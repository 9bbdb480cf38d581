// Sums of gradients over the processes, overlapped with the backward pass: gradients live in a few flat buffers, and a
// buffer whose last gradient has arrived is sent while the others are still being computed.
#pragma once

#include <memory>
#include <vector>

#include "train/communicator.hpp"

namespace mhla::train {

class GradientBuckets {
 public:
  static constexpr std::int64_t kBytes = std::int64_t{16} << 20;

  // Parameters in the order of the forward pass; buckets fill from the end, where the backward pass begins.
  GradientBuckets(const std::vector<at::Tensor>& parameters, Communicator& communicator, std::int64_t bytes = kBytes);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  void clear();                         // before the first backward pass of a step: gradients are zero
  void expect_last() { last_ = true; }  // the next backward pass is the last of the step: send
  void finish();                        // after it: gradients are the sums over all processes

 private:
  struct Bucket {
    at::Tensor flat;
    std::vector<at::Tensor> parameters, views;
    std::size_t missing = 0;  // gradients that have not arrived in this pass
  };
  struct Hook;

  void arrived(std::size_t bucket, std::int64_t place);
  void send_ready();

  Communicator& communicator_;
  std::vector<Bucket> buckets_;
  at::Tensor used_;                          // by place among all parameters: how many processes have a gradient
  std::vector<Communicator::Wait> pending_;  // one per bucket sent; buckets go out in the same order on every rank
  bool last_ = false;
};

}  // namespace mhla::train
