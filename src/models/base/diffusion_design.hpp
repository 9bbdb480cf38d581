// What designs of diffusion transformers share: sizes of the model or of its options, and the grid of tokens.
#pragma once

#include <cstdint>

#include "models/base/generator.hpp"
#include "nn/grid.hpp"

namespace mhla::models {

struct DiffusionSizes {
  std::int64_t width = 0, depth = 0, heads = 0, patch = 0;
};

struct DiffusionDesign : DiffusionSizes {
  // `own` and `own_attention` are what the model has where the options leave it open. Throws an Error that names the
  // first option that does not work out.
  DiffusionDesign(GeneratorOptions given, const DiffusionSizes& own, const char* own_attention);

  Partition partition() const;  // the grid in the options' blocks

  GeneratorOptions options;  // their attention is never empty
  nn::Grid grid;             // tokens of a picture of the options' size
};

}  // namespace mhla::models
