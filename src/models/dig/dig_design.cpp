// Sizes by name, and the layers.
#include "models/dig/dig_design.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/base/grid_design.hpp"
#include "models/base/option_checks.hpp"

namespace mhla::models {
namespace {

struct Size {
  const char* name;
  DiffusionSizes sizes;
};
constexpr std::array kSizes = {Size{"dig_s2", {.width = 384, .depth = 12, .heads = 6, .patch = 2}},
                               Size{"dig_b2", {.width = 768, .depth = 12, .heads = 12, .patch = 2}},
                               Size{"dig_l2", {.width = 1024, .depth = 24, .heads = 16, .patch = 2}},
                               Size{"dig_xl2", {.width = 1152, .depth = 28, .heads = 18, .patch = 2}}};
constexpr std::int64_t kLepeSide = 3;

DiffusionSizes own_sizes(const std::string& model) {
  for (const Size& size : kSizes)
    if (model == size.name) return size.sizes;
  throw Error(fmt::format("model \"{}\" is no DiG", model));
}

DigAttention parse_attention(const std::string& name) {
  if (name == "gla") return DigAttention::gla;
  if (name == "mhla") return DigAttention::mhla;
  throw Error(fmt::format("attention is \"{}\"; of a DiG model it may be gla or mhla", name));
}

}  // namespace

std::vector<std::string> dig_names() {
  std::vector<std::string> names;
  names.reserve(kSizes.size());
  for (const Size& size : kSizes) names.emplace_back(size.name);
  return names;
}

DigDesign::DigDesign(const GeneratorOptions& given) : DiffusionDesign(given, own_sizes(given.model), "gla") {
  std::int64_t turn = 0;
  for (const std::string& name : names_per_layer(options.attention, depth)) {
    attention.push_back(parse_attention(name));
    scans.push_back(attention.back() == DigAttention::gla ? scan_number(turn++) : Scan{});
  }
  if (turn > 0 && width % (2 * heads) != 0)
    throw Error(
        fmt::format("heads is {}; keys of gla have half the width, so twice the heads must divide {}", heads, width));
  if (turn == depth && (options.lepe || options.qk_norm))
    throw Error(fmt::format("{} is true, but it is for layers with mhla, and all layers have gla",
                            options.lepe ? "lepe" : "qk_norm"));
}

// Four squares of the attention, eight of the MLP, and the six parts of the modulation.
double DigDesign::least_elements() const {
  return grid_model_elements(18.0, width, attention, [this] { return partition(); }, grid.tokens() + options.classes);
}

nn::GridAttentionOptions DigDesign::mhla_options() const {
  GeneratorOptions paper = options;
  paper.preset = "paper";
  nn::GridAttentionOptions result =
      grid_attention(paper, width, heads, nn::AttentionKind::mhla, [this] { return partition(); });
  result.qk_norm = options.qk_norm;
  result.gate = true;
  result.lepe_side = options.lepe ? kLepeSide : 0;
  return result;
}

}  // namespace mhla::models
