// What a model name, sizes and a choice of attention amount to.
#pragma once

#include <string>
#include <vector>

#include "models/wan/wan_attention.hpp"
#include "models/wan/wan_options.hpp"

namespace mhla::models {

struct WanDesign {
  explicit WanDesign(const WanOptions& options);

  double least_elements() const { return static_cast<double>(parameters()); }
  std::int64_t parameters() const;  // of the model

  Partition partition() const;  // of the size in the options
  WanAttentionOptions attention_options(nn::AttentionKind kind) const;

  WanOptions options;
  std::int64_t width = 0, depth = 0, heads = 0, mlp_width = 0;
  std::vector<nn::AttentionKind> attention;  // per layer

 private:
  std::int64_t attention_parameters(nn::AttentionKind kind) const;
};

std::vector<std::string> wan_names();  // wan_tiny, wan_small, wan_1.3b, wan_14b

}  // namespace mhla::models
