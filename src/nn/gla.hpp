// Gated linear attention (GLA): a state that forgets channel by channel, read by every token.
//
//   S_t = diag(exp(log_decay_t)) S_{t-1} + k_t v_t^T        o_t = scale q_t S_t
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

namespace mhla::nn {

struct GlaOptions {
  std::optional<double> scale = std::nullopt;  // Dk^-0.5
  at::Tensor initial_state{};                  // S_0, [B, H, Dk, Dv]; undefined: zero
  std::int64_t chunk = 64;  // tokens in one matrix product, a power of two; results do not depend on it
};

struct GlaResult {
  at::Tensor o;      // [B, N, H, Dv], in the type of v
  at::Tensor state;  // S_N, [B, H, Dk, Dv], in float32, or float64 where v is
};

// q, k, log_decay: [B, N, H, Dk]; v: [B, N, H, Dv]. log_decay is 0 (keep everything) to -infinity (forget everything).
// Time and memory are linear in N. Differentiable in every tensor. Computed in float32, or float64 where v is.
GlaResult gla(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& log_decay,
              const GlaOptions& options = {});

}  // namespace mhla::nn
