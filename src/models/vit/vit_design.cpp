// Sizes by name, and what the presets mean.
#include "models/vit/vit_design.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/base/grid_design.hpp"
#include "models/base/option_checks.hpp"
#include "nn/patch_embedding.hpp"

namespace mhla::models {
namespace {

struct Size {
  const char* name;
  std::int64_t width, depth, heads;
};
constexpr std::array kSizes = {Size{"deit_tiny", 192, 12, 3}, Size{"deit_small", 384, 12, 6},
                               Size{"deit_base", 768, 12, 12}};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::vector<std::string> vit_names() {
  std::vector<std::string> names;
  names.reserve(kSizes.size());
  for (const Size& size : kSizes) names.emplace_back(size.name);
  return names;
}

VitDesign::VitDesign(const ClassifierOptions& options) : authors(options.preset == "authors"), options_(options) {
  check_classifier_options(options);
  const auto* const size = std::ranges::find_if(kSizes, [&](const Size& size) { return options.model == size.name; });
  if (size == kSizes.end()) throw Error(fmt::format("model \"{}\" is no vision transformer", options.model));
  width = options.width > 0 ? options.width : size->width;
  depth = options.depth > 0 ? options.depth : size->depth;
  heads = options.heads > 0 ? options.heads : size->heads;
  if (width % heads != 0) throw Error(fmt::format("heads is {}; it must be a divisor of width, {}", heads, width));
  attention = attention_per_layer(options.attention, depth);
  const auto all = [&](nn::AttentionKind kind) {
    return std::ranges::all_of(attention, [&](nn::AttentionKind layer) { return layer == kind; });
  };
  class_token = authors && all(nn::AttentionKind::softmax);
  if (authors && all(nn::AttentionKind::linear)) norm = nn::NormKind::rms;
  canvas = authors && !class_token && norm == nn::NormKind::layer;
  grid = grid_of(options.image_size[0], options.image_size[1]);
  if (!canvas) return;
  grid.height = ceil_div(grid.height, options.blocks[0]) * options.blocks[0];
  grid.width = ceil_div(grid.width, options.blocks[1]) * options.blocks[1];
}

// The matrices of every layer (q, k, v, output, and two of an MLP four times as wide), mixing, positions and head.
double VitDesign::least_elements() const {
  return grid_model_elements(12.0, width, attention, [this] { return partition(); }, grid.tokens() + options_.classes);
}

nn::Grid VitDesign::grid_of(std::int64_t height, std::int64_t width) const {
  return nn::patch_grid(height, width, options_.patch);
}

Partition VitDesign::partition() const {
  return Partition::grid(std::vector{grid.height, grid.width}, options_.blocks);
}

nn::GridAttentionOptions VitDesign::attention_options(nn::AttentionKind kind) const {
  const bool mhla = kind == nn::AttentionKind::mhla;
  nn::GridAttentionOptions result = grid_attention(options_, width, heads, kind, [this] { return partition(); });
  if (!options_.lepe || (authors && !mhla)) result.lepe_side = 0;
  return result;
}

}  // namespace mhla::models
