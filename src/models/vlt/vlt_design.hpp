// Sizes of the vision linear transformers (RAVLT-T, -S, -B).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "mhla/partition.hpp"
#include "models/base/classifier.hpp"
#include "nn/attention.hpp"
#include "nn/grid.hpp"

namespace mhla::models {

struct VltDesign {
  static constexpr std::size_t kStages = 4;

  struct Stage {
    std::int64_t width = 0, depth = 0, heads = 0;
    double layer_scale = 1.0;                  // initial
    nn::Grid grid;                             // tokens of an image of the options' size
    std::vector<nn::AttentionKind> attention;  // per layer
    Partition partition = Partition::grid({1, 1}, {1, 1});
  };

  explicit VltDesign(const ClassifierOptions& options);

  double least_elements() const;  // of the model's tensors

  std::int64_t depth() const;
  const Stage& stage_of(std::int64_t layer) const;

  std::array<Stage, kStages> stages;
};

std::vector<std::string> vlt_names();

}  // namespace mhla::models
