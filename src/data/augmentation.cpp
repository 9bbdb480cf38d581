// The chain of augmentations.
#include "data/augmentation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/color.hpp"
#include "data/geometry.hpp"
#include "mhla/types.hpp"

namespace mhla::data {
namespace {

void check(bool good, std::string_view field, double value, std::string_view allowed) {
  if (!good) throw Error(fmt::format("augmentation: {} is {}; it may be {}", field, value, allowed));
}

void check_probability(std::string_view field, double value) {
  check(value >= 0.0 && value <= 1.0, field, value, "0 to 1");
}

io::Image cropped(const io::Image& image, const Augmentation& augmentation, std::int64_t height, std::int64_t width,
                  RandomStream& random) {
  if (augmentation.crop == Crop::random_resized) {
    const Box box = random_resized_box(random, image.height, image.width, augmentation.scale, augmentation.ratio);
    const Interpolation interpolation = random.chance(0.5) ? Interpolation::bilinear : Interpolation::bicubic;
    return resize(image, box, height, width, interpolation);
  }
  const io::Image covering = resize_to_cover(image, height, width, Interpolation::bicubic);
  if (augmentation.crop == Crop::centre) return centre_crop(covering, height, width);
  const auto shift = [&](std::int64_t spare) {
    return random.below(spare + 2 * augmentation.pad + 1) - augmentation.pad;
  };
  const std::int64_t top = shift(covering.height - height);
  return reflect_crop(covering, top, shift(covering.width - width), height, width);
}

io::Image flipped(io::Image image, const Augmentation& augmentation, RandomStream& random) {
  if (!augmentation.dihedral) return random.chance(augmentation.flip) ? flip_horizontal(image) : std::move(image);
  const std::int64_t symmetry = random.below(image.height == image.width ? 8 : 4);
  if ((symmetry & 4) != 0) image = transpose(image);
  if ((symmetry & 2) != 0) image = flip_vertical(image);
  if ((symmetry & 1) != 0) image = flip_horizontal(image);
  return image;
}

// Brightness, contrast and saturation in random order.
void jitter_colors(io::Image& image, double amount, RandomStream& random) {
  std::array adjustments = {adjust_brightness, adjust_contrast, adjust_saturation};
  for (std::int64_t left = 3; left > 0; --left) {
    std::swap(adjustments[left - 1], adjustments[random.below(left)]);
    adjustments[left - 1](image, random.uniform(std::max(0.0, 1.0 - amount), 1.0 + amount));
  }
}

std::array<std::uint8_t, 3> mean_color(const Normalization& normalization) {
  std::array<std::uint8_t, 3> color{};
  for (std::size_t c = 0; c < 3; ++c)
    color[c] = static_cast<std::uint8_t>(std::clamp(255.0F * normalization.mean[c] + 0.5F, 0.0F, 255.0F));
  return color;
}

}  // namespace

Augmentation augmentation_preset(std::string_view name) {
  if (name == "none") return {};
  if (name == "light") return {.crop = Crop::reflect, .dihedral = true, .smoothing = 0.1};
  if (name == "deit")
    return {.crop = Crop::random_resized,
            .flip = 0.5,
            .rand_augment = RandAugment{},
            .color_jitter = 0.4,
            .erasing = 0.25,
            .mixup = 0.2,
            .cutmix = 1.0,
            .smoothing = 0.1};
  throw Error(fmt::format("augmentation is \"{}\"; it may be none, light or deit", name));
}

void validate(const Augmentation& augmentation) {
  const auto& [low, high] = augmentation.scale;
  check(low > 0.0 && low <= high && high <= 1.0, "scale", low, "above 0 and up to 1, the smaller first");
  check(augmentation.ratio[0] > 0.0 && augmentation.ratio[0] <= augmentation.ratio[1], "ratio", augmentation.ratio[0],
        "above 0, the smaller first");
  check(augmentation.pad >= 0 && augmentation.pad <= 4096, "pad", static_cast<double>(augmentation.pad), "0 to 4096");
  check_probability("flip", augmentation.flip);
  check_probability("erasing", augmentation.erasing);
  check_probability("cutmix_share", augmentation.cutmix_share);
  check(augmentation.smoothing >= 0.0 && augmentation.smoothing < 1.0, "smoothing", augmentation.smoothing,
        "from 0 to less than 1");
  check(augmentation.color_jitter >= 0.0 && augmentation.color_jitter <= 10.0, "color_jitter",
        augmentation.color_jitter, "0 to 10");
  for (const auto& [field, alpha] : {std::pair{"mixup", augmentation.mixup}, std::pair{"cutmix", augmentation.cutmix}})
    check(alpha == 0.0 || (alpha >= 0.01 && alpha <= 4.0), field, alpha, "0 (not done) or 0.01 to 4");
}

void write_for_training(const io::Image& image, const Augmentation& augmentation, const Normalization& normalization,
                        RandomStream& random, const Planes& target) {
  io::Image result = flipped(cropped(image, augmentation, target.height, target.width, random), augmentation, random);
  if (augmentation.rand_augment) {
    rand_augment(result, *augmentation.rand_augment, mean_color(normalization), random);
  } else if (augmentation.color_jitter > 0.0) {
    jitter_colors(result, augmentation.color_jitter, random);
  }
  write_normalized(result, normalization, target);
  if (random.chance(augmentation.erasing)) erase_random_box(target, random);
}

void write_for_evaluation(const io::Image& image, double crop_fraction, const Normalization& normalization,
                          const Planes& target) {
  const auto before_crop = [&](std::int64_t side) {
    return std::max(side, static_cast<std::int64_t>(static_cast<double>(side) / crop_fraction));
  };
  const io::Image covering =
      resize_to_cover(image, before_crop(target.height), before_crop(target.width), Interpolation::bicubic);
  write_normalized(centre_crop(covering, target.height, target.width), normalization, target);
}

PairMixing draw_pair_mixing(const Augmentation& augmentation, std::int64_t height, std::int64_t width,
                            RandomStream& random) {
  if (!augmentation.mixes_pairs()) return {};
  const bool cut = augmentation.mixup == 0.0 || (augmentation.cutmix > 0.0 && random.chance(augmentation.cutmix_share));
  const double share = random.beta(cut ? augmentation.cutmix : augmentation.mixup);
  if (!cut) return {share, std::nullopt};
  const Box box = cutmix_box(height, width, share, random);
  return {1.0 - static_cast<double>(box.height * box.width) / static_cast<double>(height * width), box};
}

void write_target(std::int64_t label, std::int64_t other, double share, double smoothing, std::span<float> target) {
  std::ranges::fill(target, static_cast<float>(smoothing / static_cast<double>(target.size())));
  target[label] += static_cast<float>((1.0 - smoothing) * share);
  target[other] += static_cast<float>((1.0 - smoothing) * (1.0 - share));
}

}  // namespace mhla::data
