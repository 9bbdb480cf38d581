// What happens to an image on its way into a batch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "data/planes.hpp"
#include "data/rand_augment.hpp"
#include "data/random_stream.hpp"
#include "io/image.hpp"

namespace mhla::data {

enum class Crop {
  random_resized,  // a random part, resized
  reflect,         // shifted by up to `pad` pixels, the image continued as its mirror image
  centre,          // none: as for evaluation
};

struct Augmentation {
  Crop crop = Crop::centre;
  std::array<double, 2> scale = {0.08, 1.0};             // of the area, for random_resized
  std::array<double, 2> ratio = {3.0 / 4.0, 4.0 / 3.0};  // width / height
  std::int64_t pad = 4;

  double flip = 0.0;      // probability of a horizontal flip
  bool dihedral = false;  // one of the eight flips and turns of a square instead: for images without an up

  std::optional<RandAugment> rand_augment = std::nullopt;
  double color_jitter = 0.0;  // brightness, contrast, saturation times 1 +- this; not done beside RandAugment
  double erasing = 0.0;       // probability

  double mixup = 0.0, cutmix = 0.0;  // alpha of the Beta distribution; 0: not done
  double cutmix_share = 0.5;         // how often CutMix where both are on
  double smoothing = 0.0;            // of labels

  bool mixes_pairs() const { return mixup > 0.0 || cutmix > 0.0; }
};

// "none"; "light" for small images without an up (reflected shifts, the eight flips and turns, label smoothing 0.1);
// "deit", the recipe of the authors' code.
Augmentation augmentation_preset(std::string_view name);

// Throws an Error that names the field.
void validate(const Augmentation& augmentation);

// Both write the image's planes. `crop_fraction` of the resized image is kept by the centre crop.
void write_for_training(const io::Image& image, const Augmentation& augmentation, const Normalization& normalization,
                        RandomStream& random, const Planes& target);
void write_for_evaluation(const io::Image& image, double crop_fraction, const Normalization& normalization,
                          const Planes& target);

// How the pairs of one batch are mixed.
struct PairMixing {
  double share = 1.0;                     // of the image itself; 1: not mixed
  std::optional<Box> box = std::nullopt;  // CutMix's, whose contents are swapped
};
PairMixing draw_pair_mixing(const Augmentation& augmentation, std::int64_t height, std::int64_t width,
                            RandomStream& random);

// The smoothed label of an image mixed with one labelled `other`.
void write_target(std::int64_t label, std::int64_t other, double share, double smoothing, std::span<float> target);

}  // namespace mhla::data
