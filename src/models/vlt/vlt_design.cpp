// Sizes by name, grids and blocks of the stages.
#include "models/vlt/vlt_design.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mhla/types.hpp"
#include "models/base/option_checks.hpp"

namespace mhla::models {
namespace {

struct Size {
  const char* name;
  std::array<std::int64_t, VltDesign::kStages> widths, depths, heads;
  std::array<double, VltDesign::kStages> layer_scales;
};
constexpr std::array kSizes = {
    Size{"vlt_tiny", {64, 128, 256, 512}, {2, 2, 6, 2}, {1, 2, 4, 8}, {1.0, 1.0, 1.0, 1.0}},
    Size{"vlt_small", {64, 128, 320, 512}, {3, 5, 9, 3}, {1, 2, 5, 8}, {1.0, 1.0, 1.0, 1.0}},
    Size{"vlt_base", {96, 192, 384, 512}, {4, 6, 12, 6}, {1, 2, 6, 8}, {1.0, 1.0, 1e-6, 1e-6}},
};
constexpr std::size_t kLinearStages = 2;  // those that a single word for attention speaks of; the others are softmax

std::int64_t half(std::int64_t size) { return (size + 1) / 2; }
nn::Grid half(nn::Grid grid) { return {half(grid.height), half(grid.width)}; }

// The paper has 7x7 blocks in the first stage where the second has 4x4.
std::int64_t stage_blocks(std::size_t stage, std::int64_t blocks) { return stage == 0 ? (7 * blocks + 3) / 4 : blocks; }

}  // namespace

std::vector<std::string> vlt_names() {
  std::vector<std::string> names;
  names.reserve(kSizes.size());
  for (const Size& size : kSizes) names.emplace_back(size.name);
  return names;
}

std::int64_t VltDesign::depth() const {
  std::int64_t layers = 0;
  for (const Stage& stage : stages) layers += stage.depth;
  return layers;
}

// The matrices of every layer (q, k, v, gate, output, and two of an MLP 3.5 times as wide) and mixing.
double VltDesign::least_elements() const {
  double elements = 0.0;
  for (const Stage& stage : stages) {
    const double mixing = std::pow(static_cast<double>(stage.partition.blocks()), 2);
    elements += 12.0 * std::pow(static_cast<double>(stage.width), 2) * static_cast<double>(stage.depth) +
                mixing * static_cast<double>(std::ranges::count(stage.attention, nn::AttentionKind::mhla));
  }
  return elements;
}

const VltDesign::Stage& VltDesign::stage_of(std::int64_t layer) const {
  for (const Stage& stage : stages) {
    if (layer < stage.depth) return stage;
    layer -= stage.depth;
  }
  throw Error(fmt::format("there are only {} layers", depth()));
}

VltDesign::VltDesign(const ClassifierOptions& options) {
  check_classifier_options(options);
  const auto* const size = std::ranges::find_if(kSizes, [&](const Size& size) { return options.model == size.name; });
  if (size == kSizes.end()) throw Error(fmt::format("model \"{}\" is no vision linear transformer", options.model));
  if (options.patch != ClassifierOptions{}.patch)
    throw Error(fmt::format("patch is {}; {} has a stem of its own (4 pixels), leave patch at {}", options.patch,
                            options.model, ClassifierOptions{}.patch));
  if (options.mixing != "static")
    throw Error(fmt::format("mixing is \"{}\"; of {} it may be static", options.mixing, options.model));
  nn::Grid grid = half(half(nn::Grid{options.image_size[0], options.image_size[1]}));
  for (std::size_t i = 0; i < kStages; ++i) {
    Stage& stage = stages[i];
    stage.width = options.width > 0 ? options.width << i : size->widths[i];
    stage.depth = options.depth > 0 ? options.depth : size->depths[i];
    stage.heads = options.heads > 0 ? options.heads << i : size->heads[i];
    stage.layer_scale = size->layer_scales[i];
    if (stage.width % (4 * stage.heads) != 0)
      throw Error(fmt::format("width is {} and heads {} in stage {}; a head must have a multiple of 4 channels",
                              stage.width, stage.heads, i + 1));
    stage.grid = grid;
    stage.partition =
        nn::at_most(grid, std::array{stage_blocks(i, options.blocks[0]), stage_blocks(i, options.blocks[1])});
    grid = half(grid);
  }
  const std::vector<nn::AttentionKind> kinds = attention_per_layer(options.attention, depth());
  const bool one_for_all = options.attention.size() == 1;
  std::size_t layer = 0;
  for (std::size_t i = 0; i < kStages; ++i)
    for (std::int64_t j = 0; j < stages[i].depth; ++j, ++layer)
      stages[i].attention.push_back(one_for_all && i >= kLinearStages ? nn::AttentionKind::softmax : kinds[layer]);
}

}  // namespace mhla::models
