// DiG: a diffusion transformer whose layers scan the grid with gated linear attention, or mix its blocks with MHLA.
#pragma once

#include <vector>

#include "models/base/diffusion_transformer.hpp"
#include "models/dig/dig_design.hpp"

namespace mhla::models {

class Dig : public DiffusionTransformer {
 public:
  explicit Dig(const GeneratorOptions& options) : Dig(DigDesign(options)) {}
  explicit Dig(const DigDesign& design);

 protected:
  void through_blocks(nn::GatedStream& tokens, const at::Tensor& condition, nn::Grid grid) override;
  Partition partition_of(const GeneratorOptions& options) const override { return DigDesign(options).partition(); }

 private:
  const std::vector<Scan> scans_;  // per layer
};

}  // namespace mhla::models
