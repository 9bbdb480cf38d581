// The tables of an evaluation of a language model, for text and page alike.
#pragma once

#include <string>
#include <vector>

#include "tasks/language/evaluation.hpp"

namespace mhla::tasks {

struct EvaluationTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows = {};
};

EvaluationTable perplexity_table(const Perplexity& perplexity);
EvaluationTable position_table(const Perplexity& perplexity);
EvaluationTable task_table(const std::vector<TaskScore>& tasks);
EvaluationTable pairs_table(const Recall& recall);
EvaluationTable distance_table(const Recall& recall);
EvaluationTable needle_table(const Recall& recall);

}  // namespace mhla::tasks
