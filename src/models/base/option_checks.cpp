// Checks that options of all families share.
#include "models/base/option_checks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mhla/types.hpp"

namespace mhla::models {

void check_pair_of_sizes(const char* name, const std::vector<std::int64_t>& values) {
  constexpr std::int64_t kMost = 1 << 16;
  if (values.size() != 2 || std::ranges::any_of(values, [](std::int64_t value) { return value < 1 || value > kMost; }))
    throw Error(fmt::format("{} is [{}]; it must be two numbers from 1 to {}, height and width", name,
                            fmt::join(values, ", "), kMost));
}

void check_range(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) throw Error(fmt::format("{} is {}; it may be {} to {}", name, value, least, most));
}

void check_images(const char* name, const at::Tensor& x, std::int64_t channels, std::int64_t factor) {
  if (x.dim() != 4 || x.size(1) != channels || x.size(2) < 1 || x.size(3) < 1 || x.size(2) % factor != 0 ||
      x.size(3) % factor != 0)
    throw Error(fmt::format("{} has shape {}; it must be [batch, {}, height, width]{}", name, c10::str(x.sizes()),
                            channels, factor > 1 ? fmt::format(", multiples of {}", factor) : ""));
}

void check_preset(const std::string& preset) {
  if (preset != "paper" && preset != "authors")
    throw Error(fmt::format("preset is \"{}\"; it may be paper or authors", preset));
}

void check_mixing(const std::string& mixing, const std::string& preset) {
  if (mixing != "static" && mixing != "input")
    throw Error(fmt::format("mixing is \"{}\"; it may be static or input", mixing));
  if (mixing == "input" && preset == "authors")
    throw Error("mixing is \"input\", which the preset authors does not have; it needs the preset paper");
}

void check_attention(const std::vector<std::string>& attention) {
  if (attention.empty()) throw Error("attention is empty; it must name softmax, linear or mhla");
  for (const std::string& kind : attention) nn::parse_attention_kind(kind);
}

std::vector<std::string> names_per_layer(const std::vector<std::string>& attention, std::int64_t depth) {
  const auto given = static_cast<std::int64_t>(attention.size());
  if (given != 1 && given != depth)
    throw Error(
        fmt::format("attention has {} entries; it must have one, or one for each of the {} layers", given, depth));
  if (given == depth) return attention;
  return std::vector<std::string>(static_cast<std::size_t>(depth), attention.front());
}

std::vector<nn::AttentionKind> attention_per_layer(const std::vector<std::string>& attention, std::int64_t depth) {
  std::vector<nn::AttentionKind> kinds;
  kinds.reserve(static_cast<std::size_t>(depth));
  for (const std::string& name : names_per_layer(attention, depth)) kinds.push_back(nn::parse_attention_kind(name));
  return kinds;
}

}  // namespace mhla::models
