// The frame of a diffusion transformer: a noised picture as tokens, time and class as condition, blocks, and tokens as
// the noise in the picture. A family adds its blocks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/base/conditioning.hpp"
#include "models/base/diffusion_design.hpp"
#include "models/base/generator.hpp"
#include "models/base/modulated_block.hpp"
#include "nn/patch_embedding.hpp"

namespace mhla::models {

class DiffusionTransformer : public Generator {
 public:
  explicit DiffusionTransformer(const DiffusionDesign& design);

  at::Tensor forward(const at::Tensor& x, const at::Tensor& t, const at::Tensor& y) override;
  std::int64_t patch() const override { return patch_; }
  std::vector<at::Tensor> mixing_parameters() override;

 protected:
  void add_block(const std::shared_ptr<ModulatedBlock>& block);
  // Initial values once all blocks are there. They start as the identity: the layers that modulate are zero,
  // convolutions on the grid copy.
  void initialise();

  virtual void through_blocks(nn::GatedStream& tokens, const at::Tensor& condition, nn::Grid grid);
  void through_block(std::size_t layer, nn::GatedStream& tokens, const at::Tensor& condition, nn::Grid grid);

  virtual Partition partition_of(const GeneratorOptions& options) const = 0;  // of a model of this family
  at::Tensor fitted(const std::string& name, const at::Tensor& stored,
                    const std::optional<GeneratorOptions>& from) const override;

  std::vector<std::shared_ptr<ModulatedBlock>> blocks_;

 private:
  at::Tensor position(nn::Grid grid);

  const std::int64_t width_, patch_;
  const nn::Grid grid_;  // that of the options
  nn::PatchEmbedding patches_;
  TimeEmbedding times_;
  LabelEmbedding labels_;
  at::Tensor position_;  // fixed
  nn::Grid other_grid_{};
  at::Tensor other_position_;  // of the latest grid that is another
  std::shared_ptr<torch::nn::Module> list_;
  torch::nn::Linear final_modulation_, out_;
};

}  // namespace mhla::models
