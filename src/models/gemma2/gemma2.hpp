// The Gemma-2 decoder as a text encoder: tokens in, the states after the last norm out. Weights under transformers'
// names.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "models/base/model.hpp"
#include "models/gemma2/layer.hpp"

namespace mhla::models {

// From a config of transformers; members that do not concern these sizes are left alone.
struct Gemma2Options {
  std::int64_t vocab_size = 256000, hidden_size = 2304, intermediate_size = 9216, num_hidden_layers = 26;
  std::int64_t num_attention_heads = 8, num_key_value_heads = 4, head_dim = 256;
  double query_pre_attn_scalar = 256.0;  // attention is scaled by its inverse square root
  std::int64_t sliding_window = 4096;    // tokens that every other layer sees, from the first one on
  double attn_logit_softcapping = 50.0;
  double rope_theta = 10000.0, rms_norm_eps = 1e-6;
};

void to_json(io::Json& json, const Gemma2Options& options);
void from_json(const io::Json& json, Gemma2Options& options);

class Gemma2 : public Model {
 public:
  explicit Gemma2(const Gemma2Options& options);

  // ids: int64 [B, T]; mask: [B, T], 0 where a token is padding, which no other one sees; undefined: none is. Returns
  // [B, T, C], zero at padding.
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& mask = {});

  io::Json config() const override { return options; }
  std::span<const SameLayer> weight_names() const override;  // those of a whole language model, "model.layers...."

  const Gemma2Options options;

 private:
  torch::nn::Embedding embed_tokens_;
  std::vector<std::shared_ptr<gemma2::Layer>> layers_;
  gemma2::Norm norm_;
};

}  // namespace mhla::models
