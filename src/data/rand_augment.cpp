// The operations of RandAugment and their strengths.
#include "data/rand_augment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <concepts>

#include "data/color.hpp"
#include "data/geometry.hpp"
#include "mhla/types.hpp"

namespace mhla::data {
namespace {

constexpr double kLargestMagnitude = 10.0;

double either_sign(double value, RandomStream& random) { return random.chance(0.5) ? -value : value; }

// Factor of a colour adjustment. Increasing: 1 +- 0.9 strength; otherwise 0.1 to 1.9, so that the middle does nothing.
double factor(double strength, bool increasing, RandomStream& random) {
  return increasing ? std::max(0.1, 1.0 + either_sign(0.9 * strength, random)) : 0.1 + 1.8 * strength;
}

template <typename Number>
Number read_number(std::string_view digits, std::string_view text, Number most) {
  Number value = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure != std::errc{} || end != digits.data() + digits.size() || !(value >= 0 && value <= most))
    throw Error(fmt::format("RandAugment \"{}\": \"{}\" is not {} from 0 to {}", text, digits,
                            std::integral<Number> ? "an integer" : "a number", most));
  return value;
}

}  // namespace

RandAugment parse_rand_augment(std::string_view text) {
  RandAugment options{.deviation = 0.0, .increasing = false};
  std::string_view rest = text;
  const auto next_part = [&] {
    const std::string_view part = rest.substr(0, rest.find('-'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    return part;
  };
  if (next_part() != "rand") throw Error(fmt::format("RandAugment \"{}\" must begin with \"rand\"", text));
  while (!rest.empty()) {
    const std::string_view part = next_part();
    const auto number_after = [&](std::string_view key, auto most) {
      return read_number(part.substr(key.size()), text, most);
    };
    if (part.starts_with("mstd")) {
      options.deviation = number_after("mstd", 100.0);
    } else if (part.starts_with("m")) {
      options.magnitude = std::min(number_after("m", 100.0), kLargestMagnitude);
    } else if (part == "inc0" || part == "inc1") {
      options.increasing = part == "inc1";
    } else if (part.starts_with("n")) {
      options.operations = number_after("n", 100);
    } else if (part.starts_with("p")) {
      options.probability = number_after("p", 1.0);
    } else {
      throw Error(
          fmt::format("RandAugment \"{}\": \"{}\" is unknown; there are m, mstd, inc0, inc1, n and p", text, part));
    }
  }
  return options;
}

std::string to_string(const RandAugment& options) {
  return fmt::format("rand-m{}-mstd{}-inc{}-n{}-p{}", options.magnitude, options.deviation, options.increasing ? 1 : 0,
                     options.operations, options.probability);
}

void apply_operation(io::Image& image, std::string_view operation, double magnitude, bool increasing,
                     Interpolation interpolation, std::array<std::uint8_t, 3> fill, RandomStream& random) {
  constexpr double kMostDegrees = 30.0, kMostShear = 0.3, kMostShift = 0.45;
  const double strength = magnitude / kLargestMagnitude;
  const auto move = [&](const Affine& affine) { image = transform(image, affine, interpolation, fill); };
  if (operation == "auto_contrast") return auto_contrast(image);
  if (operation == "equalize") return equalize(image);
  if (operation == "invert") return invert(image);
  if (operation == "posterize") {
    const int bits = static_cast<int>(4.0 * strength);
    return posterize(image, increasing ? 4 - bits : bits);
  }
  if (operation == "solarize") {
    const int threshold = std::min(256, static_cast<int>(256.0 * strength));
    return solarize(image, increasing ? 256 - threshold : threshold);
  }
  if (operation == "solarize_add") return solarize_add(image, std::min(128, static_cast<int>(110.0 * strength)));
  if (operation == "saturation") return adjust_saturation(image, factor(strength, increasing, random));
  if (operation == "contrast") return adjust_contrast(image, factor(strength, increasing, random));
  if (operation == "brightness") return adjust_brightness(image, factor(strength, increasing, random));
  if (operation == "sharpness") return adjust_sharpness(image, factor(strength, increasing, random));
  if (operation == "rotate")
    return move(rotation(either_sign(kMostDegrees * strength, random), image.height, image.width));
  if (operation == "shear_x") return move({.b = either_sign(kMostShear * strength, random)});
  if (operation == "shear_y") return move({.d = either_sign(kMostShear * strength, random)});
  const double shift = either_sign(kMostShift * strength, random);
  if (operation == "translate_x") return move({.c = shift * static_cast<double>(image.width)});
  if (operation == "translate_y") return move({.f = shift * static_cast<double>(image.height)});
  throw Error(fmt::format("operation \"{}\" is unknown", operation));
}

void rand_augment(io::Image& image, const RandAugment& options, std::array<std::uint8_t, 3> fill,
                  RandomStream& random) {
  for (int slot = 0; slot < options.operations; ++slot) {
    const std::string_view operation = kRandAugmentOperations[random.below(kRandAugmentOperations.size())];
    if (!random.chance(options.probability)) continue;
    const double magnitude =
        std::clamp(options.magnitude + options.deviation * random.normal(), 0.0, kLargestMagnitude);
    const Interpolation interpolation = random.chance(0.5) ? Interpolation::bilinear : Interpolation::bicubic;
    apply_operation(image, operation, magnitude, options.increasing, interpolation, fill, random);
  }
}

}  // namespace mhla::data
