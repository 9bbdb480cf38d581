// The evaluation of a trained classifier on a split of a data set.
#pragma once

#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "models/base/attention_statistics.hpp"
#include "models/classifier_file.hpp"
#include "tasks/classify/classification.hpp"

namespace mhla::tasks {

struct EvaluationOptions {
  std::string data, split = "test";  // split "": the class folders lie at the top
  std::int64_t batch = 256;
  std::int64_t attention_images = 0;  // on so many images, rank and entropy of the attention too
  int workers = 0;                    // threads that prepare images; 0: one per core
};

struct ClassifyEvaluation {
  std::string model, data;  // file and split
  std::vector<std::string> classes;
  Classification result = {};
  double seconds = 0.0;
  std::vector<models::LayerStatistics> attention = {};  // where asked for
};

// `path` is the model's file, for messages; notes on the images go to `text`.
ClassifyEvaluation evaluate_classifier(models::LoadedClassifier& loaded, const std::filesystem::path& path,
                                       const EvaluationOptions& options, at::Device device, bool bf16,
                                       std::ostream& text);

}  // namespace mhla::tasks
