// Sizes by name, checks, and the layers.
#include "models/wan/wan_design.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "mhla/torch.hpp"
#include "models/base/option_checks.hpp"
#include "models/base/options_json.hpp"

namespace mhla::models {

template <typename Options, typename Visit>
  requires std::is_same_v<std::remove_const_t<Options>, WanOptions>
void for_each_option(Options& options, const Visit& visit) {
  visit("model", options.model);
  visit("attention", options.attention);
  visit("size", options.size);
  visit("blocks", options.blocks);
  visit("patch", options.patch);
  visit("channels", options.channels);
  visit("out_channels", options.out_channels);
  visit("text_width", options.text_width);
  visit("text_tokens", options.text_tokens);
  visit("width", options.width);
  visit("depth", options.depth);
  visit("heads", options.heads);
  visit("mlp_width", options.mlp_width);
  visit("frequencies", options.frequencies);
  visit("gate", options.gate);
  visit("lepe", options.lepe);
  visit("normalizer", options.normalizer);
  visit("output_norm", options.output_norm);
  visit("mixing_init", options.mixing_init);
  visit("mixing_sigma", options.mixing_sigma);
  visit("mixing_frozen", options.mixing_frozen);
  visit("recompute", options.recompute);
}

void to_json(io::Json& json, const WanOptions& options) { write_options(json, options); }
void from_json(const io::Json& json, WanOptions& options) { read_options(json, options, "video model"); }

namespace {

struct WanSize {
  const char* name;
  std::int64_t width, depth, heads, mlp_width;
};
constexpr std::array kWanSizes = {WanSize{"wan_tiny", 192, 6, 4, 768}, WanSize{"wan_small", 384, 12, 6, 1536},
                                  WanSize{"wan_1.3b", 1536, 30, 12, 8960}, WanSize{"wan_14b", 5120, 40, 40, 13824}};
constexpr std::int64_t kSoftmaxEvery = 3;  // of the paper's hybrid

const WanSize& own_wan_size(const std::string& model) {
  const auto* const found = std::ranges::find_if(kWanSizes, [&](const WanSize& size) { return model == size.name; });
  if (found == kWanSizes.end())
    throw Error(fmt::format("model is \"{}\"; it may be {}", model, fmt::join(wan_names(), ", ")));
  return *found;
}

void check_three(const char* name, const std::vector<std::int64_t>& values) {
  constexpr std::int64_t kMost = 1 << 16;
  if (values.size() != 3 || std::ranges::any_of(values, [](std::int64_t value) { return value < 1 || value > kMost; }))
    throw Error(fmt::format("{} is [{}]; it must be three numbers from 1 to {}: frames, height and width", name,
                            fmt::join(values, ", "), kMost));
}

void check_numbers(const WanOptions& options) {
  check_three("size", options.size);
  check_three("blocks", options.blocks);
  check_three("patch", options.patch);
  for (const std::int64_t side : options.patch) check_range("patch", side, 1, 64);
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (options.size[axis] % options.patch[axis] != 0)
      throw Error(fmt::format("size is [{}]; each number must be a multiple of that of patch, [{}]",
                              fmt::join(options.size, ", "), fmt::join(options.patch, ", ")));
  check_range("channels", options.channels, 1, 1 << 12);
  check_range("out_channels", options.out_channels, 1, 1 << 12);
  check_range("text_width", options.text_width, 1, 1 << 16);
  check_range("text_tokens", options.text_tokens, 1, 1 << 16);
  check_range("width", options.width, 0, 1 << 16);
  check_range("depth", options.depth, 0, 1024);
  check_range("heads", options.heads, 0, 1 << 12);
  check_range("mlp_width", options.mlp_width, 0, 1 << 20);
  check_range("frequencies", options.frequencies, 2, 1 << 16);
  if (options.frequencies % 2 != 0)
    throw Error(fmt::format("frequencies is {}; it must be even: cosines and sines", options.frequencies));
  if (!std::isfinite(options.mixing_sigma) || options.mixing_sigma <= 0.0)
    throw Error(fmt::format("mixing_sigma is {}; it must be a number above 0", options.mixing_sigma));
  parse_mixing_init(options.mixing_init);
  parse_normalizer(options.normalizer);
  parse_output_norm(options.output_norm);
}

std::vector<nn::AttentionKind> layers_of(const std::vector<std::string>& attention, std::int64_t depth) {
  if (attention != std::vector<std::string>{"hybrid"}) return attention_per_layer(attention, depth);
  std::vector<nn::AttentionKind> kinds(static_cast<std::size_t>(depth), nn::AttentionKind::mhla);
  for (std::size_t layer = 0; layer < kinds.size(); layer += kSoftmaxEvery) kinds[layer] = nn::AttentionKind::softmax;
  return kinds;
}

std::int64_t product(const std::vector<std::int64_t>& values) { return values[0] * values[1] * values[2]; }

// Elements of a linear layer with bias.
std::int64_t linear_elements(std::int64_t from, std::int64_t to) { return (from + 1) * to; }

}  // namespace

std::vector<std::string> wan_names() {
  std::vector<std::string> names;
  names.reserve(kWanSizes.size());
  for (const WanSize& size : kWanSizes) names.emplace_back(size.name);
  return names;
}

WanDesign::WanDesign(const WanOptions& given) : options(given) {
  const WanSize& own = own_wan_size(options.model);
  check_numbers(options);
  const auto either = [](std::int64_t option, std::int64_t size) { return option > 0 ? option : size; };
  width = either(options.width, own.width);
  depth = either(options.depth, own.depth);
  heads = either(options.heads, own.heads);
  mlp_width = either(options.mlp_width, own.mlp_width);
  if (width % (2 * heads) != 0)
    throw Error(
        fmt::format("heads is {}; width, {}, must be a multiple of twice that: channels of a head are rotated in "
                    "pairs",
                    heads, width));
  attention = layers_of(options.attention, depth);
  if (std::ranges::count(attention, nn::AttentionKind::mhla) > 0) static_cast<void>(partition());
}

Partition WanDesign::partition() const {
  std::vector<std::int64_t> grid = options.size;
  for (std::size_t axis = 0; axis < grid.size(); ++axis) grid[axis] /= options.patch[axis];
  return Partition::grid(grid, options.blocks);
}

WanAttentionOptions WanDesign::attention_options(nn::AttentionKind kind) const {
  WanAttentionOptions result{.dim = width, .heads = heads, .kind = kind};
  if (kind != nn::AttentionKind::mhla) return result;
  result.partition = partition();
  result.mixing =
      mixing_tensor(result.partition, parse_mixing_init(options.mixing_init), {.sigma = options.mixing_sigma});
  result.mixing_frozen = options.mixing_frozen;
  result.gate = options.gate;
  result.lepe = options.lepe;
  result.normalizer = parse_normalizer(options.normalizer);
  result.output_norm = parse_output_norm(options.output_norm);
  return result;
}

std::int64_t WanDesign::attention_parameters(nn::AttentionKind kind) const {
  std::int64_t count = 4 * linear_elements(width, width) + 2 * width;
  if (kind != nn::AttentionKind::mhla) return count;
  const std::int64_t blocks = partition().blocks();
  count += blocks * blocks;
  if (options.output_norm != "none") count += options.output_norm == "head" ? width / heads : width;
  if (options.gate) count += linear_elements(width, width);
  if (options.lepe) count += 28 * width;
  return count;
}

std::int64_t WanDesign::parameters() const {
  const std::int64_t volume = product(options.patch);
  std::int64_t count = linear_elements(volume * options.channels, width) +
                       linear_elements(width, volume * options.out_channels) + 2 * width +  // patches, head
                       linear_elements(options.text_width, width) + linear_elements(width, width) +
                       linear_elements(options.frequencies, width) + linear_elements(width, width) +
                       linear_elements(width, 6 * width);
  for (const nn::AttentionKind kind : attention)
    count += attention_parameters(kind) + attention_parameters(nn::AttentionKind::softmax) +  // self and cross
             6 * width + 2 * width + linear_elements(width, mlp_width) + linear_elements(mlp_width, width);
  return count;
}

}  // namespace mhla::models
