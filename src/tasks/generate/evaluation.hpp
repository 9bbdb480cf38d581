// How good the pictures of a generator are, seen by a classifier: how far their distribution is from that of real
// pictures, and whether they show what was asked for. Features are the classifier's own, so that numbers compare only
// with others by the same classifier.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "io/image.hpp"
#include "tasks/generate/denoising_error.hpp"
#include "tasks/generate/precision_recall.hpp"
#include "tasks/generate/sampling.hpp"

namespace mhla::tasks {

struct GenerateEvaluationOptions {
  std::string model;   // what draws; or
  std::string images;  // pictures already made, as CLASS/*.jpg|png: a folder or a tar archive
  std::string classifier;
  std::string data, split = "val";  // real pictures; split "": the class folders lie at the top
  std::int64_t count = 0;           // pictures of each class; 0: kDefaultCount, of `images` as many as every class has
  std::string sampler;              // empty: the usual one of the generator
  std::int64_t steps = 50;
  diffusion::Guidance guidance;
  std::uint64_t seed = 0;
  std::int64_t batch = 64;  // pictures that a network sees at a time

  static constexpr std::int64_t kDefaultCount = 100;
};

// Of one set of pictures, the same number of each class, against the real ones.
struct PictureScores {
  std::string name;  // "drawn", "real, train"
  std::int64_t pictures = 0;
  double frechet = 0;
  PrecisionRecall manifolds = {};
  double consistency = 0;  // share of pictures that the classifier takes for what they should be
  std::vector<double> consistency_by_class = {};
};

struct GenerateEvaluation {
  std::string pictures, classifier, data;  // what is judged, by what, against what
  std::vector<std::string> classes;        // in the classifier's order
  std::int64_t features = 0, real_pictures = 0;
  PictureScores judged;
  std::optional<PictureScores> baseline;    // real pictures of another split: what is reachable
  std::optional<DenoisingError> denoising;  // on the real pictures; none of `images`
  std::vector<io::Image> examples;          // some pictures of each class, in a grid
  std::vector<std::string> notes;
  double seconds = 0;
};

// Told that `done` more of `total` of a phase is done: "drawing", "looking at real pictures", ...
using Phase = std::function<void(const std::string& phase, double done, double total)>;

GenerateEvaluation evaluate_generator(const GenerateEvaluationOptions& options, at::Device device,
                                      const Phase& phase = nullptr);

}  // namespace mhla::tasks
