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

DiffusionSizes own_sizes(const std::string& model) {
  for (const Size& size : kSizes)
    for (const std::int64_t patch : kPatches)
      if (model == name_of(size, patch)) return {size.width, size.depth, size.heads, patch};
  throw Error(fmt::format("model \"{}\" is no DiT", model));
}

}  // namespace

std::vector<std::string> dit_names() {
  std::vector<std::string> names;
  for (const Size& size : kSizes)
    for (const std::int64_t patch : kPatches) names.push_back(name_of(size, patch));
  return names;
}

DitDesign::DitDesign(const GeneratorOptions& given)
    : DiffusionDesign(given, own_sizes(given.model), "mhla"), attention(attention_per_layer(options.attention, depth)),
      authors(options.preset == "authors") {
  if (authors && options.recompute)
    throw Error("recompute: the preset authors has dropout, which would be drawn anew; it needs the preset paper");
}

// As of a vision transformer, and the six parts of the modulation.
double DitDesign::least_elements() const {
  return grid_model_elements(18.0, width, attention, [this] { return partition(); }, grid.tokens() + options.classes);
}

nn::GridAttentionOptions DitDesign::attention_options(nn::AttentionKind kind) const {
  const bool mhla = kind == nn::AttentionKind::mhla;
  nn::GridAttentionOptions result = grid_attention(options, width, heads, kind, [this] { return partition(); });
  result.qkv_bias = true;
  result.qk_norm = options.qk_norm;
  result.gate = options.gate;
  result.lepe_side = options.lepe || (authors && mhla) ? kLepeSide : 0;
  if (authors && mhla) result.dropout = kAuthorsDropout;
  return result;
}

}  // namespace mhla::models
