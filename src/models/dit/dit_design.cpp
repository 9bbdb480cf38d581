// Sizes by name, and what the presets mean.
#include "models/dit/dit_design.hpp"

#include <fmt/format.h>

#include <array>

#include "models/base/grid_design.hpp"
#include "models/base/option_checks.hpp"

namespace mhla::models {
namespace {

struct Size {
  const char* letters;
  std::int64_t width, depth, heads;
};
constexpr std::array kSizes = {Size{"t", 256, 8, 4}, Size{"s", 384, 12, 6}, Size{"b", 768, 12, 12},
                               Size{"l", 1024, 24, 16}, Size{"xl", 1152, 28, 16}};
constexpr std::array<std::int64_t, 3> kPatches = {2, 4, 8};
constexpr std::int64_t kLepeSide = 3;
constexpr double kAuthorsDropout = 0.1;

std::string name_of(const Size& size, std::int64_t patch) { return fmt::format("dit_{}{}", size.letters, patch); }

}  // namespace

std::vector<std::string> dit_names() {
  std::vector<std::string> names;
  for (const Size& size : kSizes)
    for (const std::int64_t patch : kPatches) names.push_back(name_of(size, patch));
  return names;
}

DitDesign::DitDesign(const GeneratorOptions& options) : authors(options.preset == "authors"), options_(options) {
  const auto chosen = [](std::int64_t option, std::int64_t of_the_model) { return option > 0 ? option : of_the_model; };
  for (const Size& size : kSizes)
    for (const std::int64_t side : kPatches)
      if (options.model == name_of(size, side)) {
        width = chosen(options.width, size.width);
        depth = chosen(options.depth, size.depth);
        heads = chosen(options.heads, size.heads);
        patch = chosen(options.patch, side);
      }
  if (width == 0) throw Error(fmt::format("model \"{}\" is no DiT", options.model));
  if (width % heads != 0) throw Error(fmt::format("heads is {}; it must be a divisor of width, {}", heads, width));
  if (width % 4 != 0) throw Error(fmt::format("width is {}; it must be a multiple of 4", width));
  for (const std::int64_t side : options.size)
    if (side % patch != 0)
      throw Error(fmt::format("size is [{}, {}]; both must be multiples of the patch, {}", options.size[0],
                              options.size[1], patch));
  attention = attention_per_layer(options.attention, depth);
  if (authors && options.recompute)
    throw Error("recompute: the preset authors has dropout, which would be drawn anew; it needs the preset paper");
  grid = {options.size[0] / patch, options.size[1] / patch};
}

// As of a vision transformer, and the six parts of the modulation.
double DitDesign::least_elements() const {
  return grid_model_elements(18.0, width, attention, [this] { return partition(); }, grid.tokens() + options_.classes);
}

Partition DitDesign::partition() const {
  return Partition::grid(std::vector{grid.height, grid.width}, options_.blocks);
}

nn::GridAttentionOptions DitDesign::attention_options(nn::AttentionKind kind) const {
  const bool mhla = kind == nn::AttentionKind::mhla;
  nn::GridAttentionOptions result = grid_attention(options_, width, heads, kind, [this] { return partition(); });
  result.qkv_bias = true;
  result.qk_norm = options_.qk_norm;
  result.gate = options_.gate;
  result.lepe_side = options_.lepe || (authors && mhla) ? kLepeSide : 0;
  if (authors && mhla) result.dropout = kAuthorsDropout;
  return result;
}

}  // namespace mhla::models
