// Results of an evaluation of a language model, for people and programs.
#pragma once

#include <string>

#include "io/json.hpp"
#include "tasks/language/evaluation.hpp"

namespace mhla::tasks {

std::string evaluation_text(const LanguageEvaluation& evaluation);
io::Json evaluation_json(const LanguageEvaluation& evaluation);
std::string evaluation_page(const LanguageEvaluation& evaluation);

}  // namespace mhla::tasks
