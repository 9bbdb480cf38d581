// What a model name and a choice of attention amount to. Both presets are the same.
#pragma once

#include <string>
#include <vector>

#include "models/base/diffusion_design.hpp"
#include "models/dig/scan.hpp"
#include "nn/attention.hpp"

namespace mhla::models {

enum class DigAttention { gla, mhla };

struct DigDesign : DiffusionDesign {
  explicit DigDesign(const GeneratorOptions& options);

  double least_elements() const;  // of the model's tensors

  nn::GridAttentionOptions mhla_options() const;

  std::vector<DigAttention> attention;  // per layer
  std::vector<Scan> scans;              // per layer: those of GLA take turns, MHLA sees the grid as it is
};

std::vector<std::string> dig_names();  // dig_s2, dig_b2, dig_l2, dig_xl2

}  // namespace mhla::models
