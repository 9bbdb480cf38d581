// Calls of the operator library on torch tensors, and the double-precision truth they are compared with.
#pragma once

#include <torch/torch.h>

#include <optional>

#include "mhla/attention.hpp"

namespace mhla::cli {

// q, k, v: [B, N, H, D] in the problem's dtype; mixing in its accumulation type.
struct Tokens {
  torch::Tensor q, k, v, mixing;
};

struct Results {
  torch::Tensor o;
  torch::Tensor d_q, d_k, d_v, d_mixing;  // undefined without a backward pass
};

torch::Device torch_device(const Problem& problem);  // the first GPU for Device::cuda

// Standard normal q, k, v for the problem, on its device; the same for equal seeds. `mixing` is [M, M] or [H, M, M] in
// double.
Tokens random_tokens(const Problem& problem, const torch::Tensor& mixing, std::uint64_t seed);
torch::Tensor random_output_gradient(const Problem& problem, std::uint64_t seed);

// Forward, and backward where `d_o` is given, by the fast kernels: on torch's threads or, not awaited, on the current
// stream of the GPU. Workspace and results come from torch's allocator.
Results run_operator(const Plan& plan, const Tokens& tokens, const torch::Tensor& d_o = {});

// The same by the definition in double, on the CPU: inputs are converted first. O(N^2).
Results run_reference(const Problem& problem, const Tokens& tokens, const torch::Tensor& d_o = {});

// ||a - b|| / ||b|| in double, not finite where a is not; 0 for equal tensors.
double relative_rms(const torch::Tensor& a, const torch::Tensor& b);
// max |a - b|
double largest_error(const torch::Tensor& a, const torch::Tensor& b);
// Largest relative_rms over the results both have.
double worst_relative_rms(const Results& a, const Results& b);

// Relative RMS a correct kernel of this element type stays under.
double tolerance(DType dtype);

// [M, M] in double from the initialisers of the library.
torch::Tensor to_matrix(const std::vector<double>& mixing);

}  // namespace mhla::cli
