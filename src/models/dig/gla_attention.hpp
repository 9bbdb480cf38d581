// The attention layer of DiG: gated linear attention along the sequence, under fla's names.
#pragma once

#include <torch/torch.h>

namespace mhla::models {

class GlaAttentionImpl : public torch::nn::Module {
 public:
  GlaAttentionImpl(std::int64_t dim, std::int64_t heads);

  at::Tensor forward(const at::Tensor& x);  // [B, N, C] in the order of the scan

  void initialise();

  const std::int64_t heads;
  torch::nn::Linear q_proj, k_proj, v_proj, g_proj, o_proj;
  torch::nn::Linear decay_in, decay_out;  // gk_proj: of low rank
  at::Tensor norm_weight;                 // of the RMSNorm of a head's output, [Dv]
};
TORCH_MODULE(GlaAttention);

}  // namespace mhla::models
