// Reading and classifying pictures, batch by batch.
#include "tasks/generate/feature_set.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "data/augmentation.hpp"
#include "mhla/types.hpp"

namespace mhla::tasks {

at::Tensor read_pictures(const PictureOf& picture, std::int64_t begin, std::int64_t end, const PictureView& view) {
  const std::int64_t height = view.size[0], width = view.size[1], elements = 3 * height * width;
  at::Tensor pictures = at::empty({end - begin, 3, height, width});
  auto* const values = pictures.data_ptr<float>();
  at::parallel_for(begin, end, 1, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from; i < to; ++i)
      data::write_for_evaluation(
          picture(i), view.crop_fraction, view.normalization,
          {height, width, std::span(values + (i - begin) * elements, static_cast<std::size_t>(elements))});
  });
  return pictures;
}

double FeatureSet::consistency() const { return labels.eq(found).to(at::kDouble).mean().item<double>(); }

std::vector<double> FeatureSet::consistency_by_class(std::int64_t classes) const {
  std::vector<double> shares;
  for (std::int64_t c = 0; c < classes; ++c) {
    const at::Tensor of_class = found.masked_select(labels.eq(c));
    shares.push_back(of_class.numel() == 0 ? std::numeric_limits<double>::quiet_NaN()
                                           : of_class.eq(c).to(at::kDouble).mean().item<double>());
  }
  return shares;
}

FeatureSet joined(const std::vector<FeatureSet>& parts) {
  const auto joined_member = [&](at::Tensor FeatureSet::* member) {
    std::vector<at::Tensor> tensors;
    tensors.reserve(parts.size());
    for (const FeatureSet& part : parts) tensors.push_back(part.*member);
    return at::cat(tensors);
  };
  return {joined_member(&FeatureSet::features), joined_member(&FeatureSet::labels), joined_member(&FeatureSet::found)};
}

FeatureSet feature_set(models::LoadedClassifier& classifier, const PictureOf& picture,
                       const std::vector<std::int64_t>& labels, std::int64_t batch,
                       const std::function<void(std::int64_t pictures)>& advance) {
  const at::NoGradGuard no_gradient;
  models::Classifier& model = *classifier.model;
  const at::Device device = model.parameters().front().device();
  const models::Preprocessing& pixels = classifier.facts.preprocessing;
  const PictureView view{model.options.image_size, {pixels.mean, pixels.std}, pixels.crop_fraction};
  std::vector<FeatureSet> parts;
  const std::int64_t count = std::ssize(labels);
  for (std::int64_t begin = 0; begin < count; begin += batch) {
    const std::int64_t end = std::min(begin + batch, count);
    const at::Tensor features = model.pooled_features(read_pictures(picture, begin, end, view).to(device));
    if (!features.isfinite().all().item<bool>())
      throw Error("the classifier's features are not finite; its weights are too large or damaged");
    const auto label = [&](std::int64_t i) { return labels.begin() + i; };
    parts.push_back({features, torch::tensor(std::vector(label(begin), label(end)), at::kLong),
                     model.logits(features).argmax(1).cpu()});
    if (advance) advance(end - begin);
  }
  return joined(parts);
}

Choice equal_choice(const data::ImageSource& source, std::int64_t most, const std::string& name) {
  std::vector<std::vector<std::int64_t>> by_class(source.classes().size());
  for (std::int64_t i = 0; i < source.size(); ++i) by_class[static_cast<std::size_t>(source.label(i))].push_back(i);
  Choice choice;
  choice.per_class = most;
  for (std::size_t c = 0; c < by_class.size(); ++c) {
    if (by_class[c].empty()) throw Error(fmt::format("{}: no pictures of class \"{}\"", name, source.classes()[c]));
    choice.per_class = std::min(choice.per_class, std::ssize(by_class[c]));
  }
  for (std::size_t c = 0; c < by_class.size(); ++c)
    for (std::int64_t i = 0; i < choice.per_class; ++i) {
      choice.pictures.push_back(by_class[c][static_cast<std::size_t>(i * std::ssize(by_class[c]) / choice.per_class)]);
      choice.labels.push_back(static_cast<std::int64_t>(c));
    }
  return choice;
}

}  // namespace mhla::tasks
