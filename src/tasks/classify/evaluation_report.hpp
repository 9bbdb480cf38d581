// Results of an evaluation of a classifier, for people and programs.
#pragma once

#include <string>
#include <vector>

#include "io/json.hpp"
#include "tasks/classify/evaluation.hpp"

namespace mhla::tasks {

std::string evaluation_text(const ClassifyEvaluation& evaluation);
io::Json evaluation_json(const ClassifyEvaluation& evaluation);
std::vector<std::byte> confusion_png(const ClassifyEvaluation& evaluation);
std::string evaluation_page(const ClassifyEvaluation& evaluation);

}  // namespace mhla::tasks
