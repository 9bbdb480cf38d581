// The diffusion transformer (DiT) with softmax, linear attention or MHLA per layer.
#pragma once

#include <string>
#include <vector>

#include "models/base/generator.hpp"
#include "models/dit/conditioning.hpp"
#include "models/dit/dit_block.hpp"
#include "models/dit/dit_design.hpp"
#include "nn/patch_embedding.hpp"

namespace mhla::models {

class Dit : public Generator {
 public:
  explicit Dit(const GeneratorOptions& options);

  at::Tensor forward(const at::Tensor& x, const at::Tensor& t, const at::Tensor& y) override;
  std::int64_t patch() const override { return design.patch; }
  std::vector<at::Tensor> mixing_parameters() override;
  std::span<const SameLayer> weight_names() const override;

  const DitDesign design;

 protected:
  at::Tensor fitted(const std::string& name, const at::Tensor& stored,
                    const std::optional<GeneratorOptions>& from) const override;

 private:
  void initialise();

  nn::PatchEmbedding patches_;
  TimeEmbedding times_;
  LabelEmbedding labels_;
  at::Tensor position_;  // fixed
  std::vector<std::shared_ptr<DitBlock>> blocks_;
  torch::nn::Linear final_modulation_ = nullptr, out_ = nullptr;
};

}  // namespace mhla::models
