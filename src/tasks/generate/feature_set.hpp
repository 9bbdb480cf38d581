// Pictures as a classifier sees them: a vector of features each, and the class it takes each for.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "data/image_source.hpp"
#include "data/planes.hpp"
#include "io/image.hpp"
#include "models/classifier_file.hpp"

namespace mhla::tasks {

using PictureOf = std::function<io::Image(std::int64_t i)>;  // called by several threads

// Pictures begin to end - 1 as a network reads them: f32 [pictures, 3, height, width].
struct PictureView {
  std::vector<std::int64_t> size;  // height and width
  data::Normalization normalization;
  double crop_fraction = 1.0;
};
at::Tensor read_pictures(const PictureOf& picture, std::int64_t begin, std::int64_t end, const PictureView& view);

struct FeatureSet {
  at::Tensor features;       // f32 [n, F], on the classifier's device
  at::Tensor labels, found;  // i64 [n] on the CPU: the class of each picture, and what the classifier takes it for

  std::int64_t size() const { return labels.size(0); }
  double consistency() const;                                            // share of pictures taken for what they are
  std::vector<double> consistency_by_class(std::int64_t classes) const;  // NaN for a class without pictures
};

FeatureSet joined(const std::vector<FeatureSet>& parts);

// labels: the class of each picture. `advance` hears of pictures that are done.
FeatureSet feature_set(models::LoadedClassifier& classifier, const PictureOf& picture,
                       const std::vector<std::int64_t>& labels, std::int64_t batch,
                       const std::function<void(std::int64_t pictures)>& advance = nullptr);

// The same number of pictures of every class, at equal distances in the source's list: as many as the smallest class
// has, and at most `most`. A class without pictures is an Error that begins with `name`.
struct Choice {
  std::vector<std::int64_t> pictures, labels;  // numbers in the source, in order
  std::int64_t per_class = 0;
};
Choice equal_choice(const data::ImageSource& source, std::int64_t most, const std::string& name);

}  // namespace mhla::tasks
