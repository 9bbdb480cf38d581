// The shapes the operator is measured at: those of the models it is for, with a batch that suits the device.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/peers.hpp"
#include "cli/support/operator_call.hpp"

namespace mhla::cli::bench {

struct Shape {
  std::string name;
  std::string about;
  Problem problem;   // float32 on the CPU, with the normaliser its models use
  TokenOrder order;  // in which the composed formula gets its tokens
  std::int64_t gpu_batch = 1;
  std::int64_t gpu_heads = 1;

  bool causal() const { return problem.options.masking == Masking::token_causal; }
  torch::Tensor mixing() const;  // [M, M], double
  std::string sizes() const;     // "(B, H, N, D, M)"
  Shape on_gpu() const;          // the same on CUDA, with more work
};

const std::vector<Shape>& all_shapes();
const Shape& shape_named(const std::string& name);  // throws a UsageError that lists the names

// N tokens of one head, D = 64, in sqrt(N) blocks: the most blocks for which the operator is still linear in N.
Shape sweep_shape(std::int64_t tokens);
std::vector<std::int64_t> sweep_tokens(std::int64_t largest);  // 256, 1024, ... up to `largest`

}  // namespace mhla::cli::bench
