// The models there are, and checks of their options.
#include "models/sana/sana_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "mhla/mixing.hpp"
#include "models/base/option_checks.hpp"
#include "models/base/options_json.hpp"

namespace mhla::models {
namespace {

struct Size {
  const char* name;
  std::int64_t width, depth, heads, cross_heads;
};
constexpr std::array kSizes = {Size{"sana_tiny", 256, 6, 8, 4}, Size{"sana_0.6b", 1152, 28, 36, 16},
                               Size{"sana_1.6b", 2240, 20, 70, 20}};

const Size& size_of(const std::string& name) {
  const auto* const found = std::ranges::find_if(kSizes, [&](const Size& size) { return name == size.name; });
  if (found == kSizes.end())
    throw Error(fmt::format("model is \"{}\"; it may be {}", name, fmt::join(sana_names(), ", ")));
  return *found;
}

void check_divides(const char* name, std::int64_t value, std::int64_t width) {
  if (width % value != 0) throw Error(fmt::format("{} is {}; it must be a divisor of width, {}", name, value, width));
}

}  // namespace

template <typename Options, typename Visit>
  requires std::is_same_v<std::remove_const_t<Options>, SanaOptions>
void for_each_option(Options& options, const Visit& visit) {
  visit("model", options.model);
  visit("attention", options.attention);
  visit("size", options.size);
  visit("blocks", options.blocks);
  visit("channels", options.channels);
  visit("caption_width", options.caption_width);
  visit("patch", options.patch);
  visit("width", options.width);
  visit("depth", options.depth);
  visit("heads", options.heads);
  visit("cross_heads", options.cross_heads);
  visit("mlp_ratio", options.mlp_ratio);
  visit("qk_norm", options.qk_norm);
  visit("mixing_init", options.mixing_init);
  visit("mixing_frozen", options.mixing_frozen);
  visit("recompute", options.recompute);
}

void to_json(io::Json& json, const SanaOptions& options) { write_options(json, options); }

void from_json(const io::Json& json, SanaOptions& options) { read_options(json, options, "model"); }

SanaDesign::SanaDesign(const SanaOptions& given) : options(given) {
  const Size& own = size_of(options.model);
  const auto either = [](std::int64_t option, std::int64_t of_the_model) { return option > 0 ? option : of_the_model; };
  check_range("width", options.width, 0, 1 << 16);
  check_range("depth", options.depth, 0, 1024);
  check_range("heads", options.heads, 0, 1 << 12);
  check_range("cross_heads", options.cross_heads, 0, 1 << 12);
  check_range("channels", options.channels, 1, 1 << 14);
  check_range("caption_width", options.caption_width, 1, 1 << 16);
  check_range("patch", options.patch, 1, 64);
  check_pair_of_sizes("size", options.size);
  check_pair_of_sizes("blocks", options.blocks);
  check_attention(options.attention);
  static_cast<void>(parse_mixing_init(options.mixing_init));
  width = either(options.width, own.width);
  depth = either(options.depth, own.depth);
  heads = either(options.heads, own.heads);
  cross_heads = either(options.cross_heads, own.cross_heads);
  check_divides("heads", heads, width);
  check_divides("cross_heads", cross_heads, width);
  if (!(options.mlp_ratio > 0.0 && options.mlp_ratio <= 64.0))
    throw Error(fmt::format("mlp_ratio is {}; it must be above 0 and at most 64", options.mlp_ratio));
  mlp_width = static_cast<std::int64_t>(options.mlp_ratio * static_cast<double>(width));
  for (const std::int64_t side : options.size)
    if (side % options.patch != 0)
      throw Error(fmt::format("size is [{}, {}]; both must be multiples of the patch, {}", options.size[0],
                              options.size[1], options.patch));
  attention = attention_per_layer(options.attention, depth);
}

Partition SanaDesign::partition() const {
  return Partition::grid(std::vector{options.size[0] / options.patch, options.size[1] / options.patch}, options.blocks);
}

double SanaDesign::least_elements() const {
  const auto channels = static_cast<double>(width), hidden = static_cast<double>(mlp_width);
  const double layer = 8.0 * channels * channels + 3.0 * channels * hidden;
  const double mixed = static_cast<double>(std::ranges::count(attention, nn::AttentionKind::mhla));
  const double matrix = mixed > 0 ? std::pow(static_cast<double>(partition().blocks()), 2) : 0.0;
  return layer * static_cast<double>(depth) + mixed * matrix +
         channels * static_cast<double>(options.caption_width + options.channels);
}

std::vector<std::string> sana_names() {
  std::vector<std::string> names;
  names.reserve(kSizes.size());
  for (const Size& size : kSizes) names.emplace_back(size.name);
  return names;
}

}  // namespace mhla::models
