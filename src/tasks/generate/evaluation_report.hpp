// Results of an evaluation of a generator, for people and programs.
#pragma once

#include <string>

#include "io/json.hpp"
#include "tasks/generate/evaluation.hpp"

namespace mhla::tasks {

std::string evaluation_text(const GenerateEvaluation& evaluation);
io::Json evaluation_json(const GenerateEvaluation& evaluation);
std::string evaluation_page(const GenerateEvaluation& evaluation);

}  // namespace mhla::tasks
