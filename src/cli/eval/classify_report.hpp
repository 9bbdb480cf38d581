// Results of an evaluation of a classifier, for people and programs.
#pragma once

#include <string>
#include <vector>

#include "io/json.hpp"
#include "models/attention_statistics.hpp"
#include "tasks/classify/classification.hpp"

namespace mhla::cli {

struct ClassifyEvaluation {
  std::string model, data;  // file and split
  std::vector<std::string> classes;
  tasks::Classification result = {};
  double seconds = 0.0;
  std::vector<models::LayerStatistics> attention = {};  // where asked for
};

std::string evaluation_text(const ClassifyEvaluation& evaluation);
io::Json evaluation_json(const ClassifyEvaluation& evaluation);
std::vector<std::byte> confusion_png(const ClassifyEvaluation& evaluation);
std::string evaluation_page(const ClassifyEvaluation& evaluation);

}  // namespace mhla::cli
