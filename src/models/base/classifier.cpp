// What options of classifiers must satisfy, and what all classifiers share.
#include "models/base/classifier.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/image.hpp"
#include "mhla/mixing.hpp"
#include "nn/block_mixing.hpp"

namespace mhla::models {
namespace {

void check_pair_of_sizes(const char* name, const std::vector<std::int64_t>& values) {
  constexpr std::int64_t kMost = 1 << 16;
  if (values.size() != 2 || std::ranges::any_of(values, [](std::int64_t value) { return value < 1 || value > kMost; }))
    throw Error(fmt::format("{} is [{}]; it must be two numbers from 1 to {}, height and width", name,
                            fmt::join(values, ", "), kMost));
}

void check_range(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) throw Error(fmt::format("{} is {}; it may be {} to {}", name, value, least, most));
}

}  // namespace

void check_classifier_options(const ClassifierOptions& options) {
  if (options.preset != "paper" && options.preset != "authors")
    throw Error(fmt::format("preset is \"{}\"; it may be paper or authors", options.preset));
  if (options.attention.empty()) throw Error("attention is empty; it must name softmax, linear or mhla");
  for (const std::string& kind : options.attention) nn::parse_attention_kind(kind);
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
  if (!(options.drop_path >= 0.0 && options.drop_path < 1.0))
    throw Error(fmt::format("drop_path is {}; it must be at least 0 and less than 1", options.drop_path));
}

std::vector<nn::AttentionKind> attention_per_layer(const ClassifierOptions& options, std::int64_t depth) {
  const auto given = static_cast<std::int64_t>(options.attention.size());
  if (given != 1 && given != depth)
    throw Error(
        fmt::format("attention has {} entries; it must have one, or one for each of the {} layers", given, depth));
  std::vector<nn::AttentionKind> kinds;
  kinds.reserve(static_cast<std::size_t>(depth));
  for (std::int64_t layer = 0; layer < depth; ++layer)
    kinds.push_back(nn::parse_attention_kind(options.attention[static_cast<std::size_t>(given == 1 ? 0 : layer)]));
  return kinds;
}

Classifier::Classifier(ClassifierOptions options) : options(std::move(options)) {
  check_classifier_options(this->options);
}

std::vector<at::Tensor> Classifier::mixing_matrices() {
  std::vector<at::Tensor> matrices;
  for (std::int64_t layer = 0; layer < layers(); ++layer)
    if (const at::Tensor mixing = mixing_parameter(layer); mixing.defined() && mixing.requires_grad())
      matrices.push_back(mixing.flatten(1));
  return matrices;
}

bool Classifier::decays(const std::string& name) const {
  return !is_mixing(name) && name.find("pos_embed") == std::string::npos;
}

void Classifier::after_step() { nn::project_mixing_(mixing_matrices()); }

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

bool is_mixing(const std::string& parameter_name) { return parameter_name.ends_with("piece_attn.conv.weight"); }

}  // namespace mhla::models
