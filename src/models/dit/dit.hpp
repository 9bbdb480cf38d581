// The diffusion transformer (DiT) with softmax, linear attention or MHLA per layer.
#pragma once

#include "models/base/diffusion_transformer.hpp"
#include "models/dit/dit_block.hpp"
#include "models/dit/dit_design.hpp"

namespace mhla::models {

class Dit : public DiffusionTransformer {
 public:
  explicit Dit(const GeneratorOptions& options) : Dit(DitDesign(options)) {}
  explicit Dit(const DitDesign& design);

  std::span<const SameLayer> weight_names() const override;

 protected:
  Partition partition_of(const GeneratorOptions& options) const override { return DitDesign(options).partition(); }
};

}  // namespace mhla::models
