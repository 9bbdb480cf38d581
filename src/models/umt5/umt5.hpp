// The umT5 encoder that Wan2.1 reads its prompts with.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "models/base/model.hpp"
#include "models/base/text_encoder.hpp"
#include "models/umt5/umt5_block.hpp"

namespace mhla::models {

// JSON has the members of the struct; those that are missing keep their defaults.
void to_json(io::Json& json, const Umt5Options& options);
void from_json(const io::Json& json, Umt5Options& options);
void check_umt5_options(const Umt5Options& options);  // throws an Error that names the wrong one

std::int64_t umt5_parameters(const Umt5Options& options);
std::span<const SameLayer> umt5_weight_names();  // Wan's and transformers'

// All layers in memory.
class Umt5 : public Model, public TextEncoder {
 public:
  explicit Umt5(const Umt5Options& options);

  at::Tensor encode(const at::Tensor& ids, const at::Tensor& mask) override;

  io::Json config() const override { return options; }
  std::span<const SameLayer> weight_names() const override { return umt5_weight_names(); }

  const Umt5Options options;

 private:
  void initialise();

  torch::nn::Embedding tokens_;
  std::vector<Umt5Block> blocks_;
  nn::Norm norm_;
};

// The layers one after another, wherever they come from: embedded tokens [B, T, C] -> states before the last norm.
using Umt5Layer = std::function<at::Tensor(std::int64_t layer, const at::Tensor& x, const at::Tensor& buckets,
                                           const at::Tensor& unseen)>;
at::Tensor through_umt5_layers(at::Tensor x, const at::Tensor& mask, const Umt5Options& options,
                               const Umt5Layer& layer);

// ids and mask that do not fit together or the vocabulary are an Error.
void check_umt5_tokens(const at::Tensor& ids, const at::Tensor& mask, const Umt5Options& options);

}  // namespace mhla::models
