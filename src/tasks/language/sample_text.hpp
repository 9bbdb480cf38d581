// A short text of a model that is being trained.
#pragma once

#include <cstdint>
#include <string>

#include "models/lm/lm.hpp"
#include "tasks/language/sampling.hpp"
#include "text/tokenizer.hpp"

namespace mhla::tasks {

struct TextRequest {
  std::string prompt;
  std::int64_t tokens = 0;  // of the answer, at most
  std::int64_t begin = 0;   // the token before every document
  SamplingOptions sampling = {};
};

// Prompt and answer. It ends where the document does.
std::string sample_text(models::Lm& model, const text::Tokenizer& tokenizer, const TextRequest& request);

}  // namespace mhla::tasks
