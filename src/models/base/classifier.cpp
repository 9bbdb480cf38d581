// What options of classifiers must satisfy, and what all classifiers share.
#include "models/base/classifier.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/image.hpp"
#include "mhla/mixing.hpp"
#include "models/base/option_checks.hpp"
#include "nn/block_mixing.hpp"

namespace mhla::models {

void check_classifier_options(const ClassifierOptions& options) {
  check_preset(options.preset);
  check_attention(options.attention);
  check_pair_of_sizes("image_size", options.image_size);
  check_pair_of_sizes("blocks", options.blocks);
  if (const std::int64_t pixels = options.image_size[0] * options.image_size[1]; pixels > io::kMostPixels)
    throw Error(fmt::format("image_size is [{}], {} pixels; at most {} are read", fmt::join(options.image_size, ", "),
                            pixels, io::kMostPixels));
  check_range("patch", options.patch, 1, 4096);
  check_range("classes", options.classes, 1, 1 << 20);
  check_range("width", options.width, 0, 1 << 16);
  check_range("depth", options.depth, 0, 1024);
  check_range("heads", options.heads, 0, 1 << 12);
  parse_mixing_init(options.mixing_init);
  check_mixing(options.mixing, options.preset);
  if (!(options.drop_path >= 0.0 && options.drop_path < 1.0))
    throw Error(fmt::format("drop_path is {}; it must be at least 0 and less than 1", options.drop_path));
}

Classifier::Classifier(ClassifierOptions options) : options(std::move(options)) {
  check_classifier_options(this->options);
}

std::vector<at::Tensor> Classifier::mixing_matrices() {
  std::vector<at::Tensor> parameters;
  parameters.reserve(static_cast<std::size_t>(layers()));
  for (std::int64_t layer = 0; layer < layers(); ++layer) parameters.push_back(mixing_parameter(layer));
  return learned_mixing(parameters);
}

bool Classifier::decays(const std::string& name) const {
  return !is_mixing(name) && name.find("pos_embed") == std::string::npos;
}

void Classifier::after_step() { nn::project_mixing_(mixing_matrices(), least_mixing(options.mixing)); }

Fit Classifier::fit_from(const io::Json& from) const {
  std::optional<ClassifierOptions> source;
  if (!from.is_null()) {
    source = from.get<ClassifierOptions>();
    check_classifier_options(*source);
  }
  return [this, source](const std::string& name, const at::Tensor& stored) { return fitted(name, stored, source); };
}

void Classifier::check_images(const at::Tensor& images) {
  if (images.dim() != 4 || images.size(1) != 3 || images.size(2) < 1 || images.size(3) < 1)
    throw Error("images has shape " + c10::str(images.sizes()) + "; it must be [batch, 3, height, width]");
}

void Classifier::check_layer(std::int64_t layer) const {
  if (layer < 0 || layer >= layers())
    throw Error(fmt::format("layer is {}; it must be from 0 to {}", layer, layers() - 1));
}

}  // namespace mhla::models
