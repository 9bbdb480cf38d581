// A sequence that goes on: prompts and answers one after the other, in memory or in a file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tasks/language/generation.hpp"

namespace mhla::tasks {

class Conversation {
 public:
  explicit Conversation(const LanguageModel& model);

  // From bytes of save(); `source` names them in errors. Throws an Error where they are damaged, or of another model or
  // tokenizer.
  Conversation(const LanguageModel& model, std::span<const std::byte> bytes, const std::string& source);
  std::vector<std::byte> save() const;

  const std::vector<text::Token>& tokens() const { return tokens_; }  // of prompts and answers so far
  std::size_t state_bytes() const { return state_.bytes(); }

  // request.prompt goes behind what is there; it may be empty where there is something.
  Answer answer(const GenerationRequest& request, const GenerationWatch& watch = {}, GenerationTimes* times = nullptr);

 private:
  const LanguageModel* model_;
  models::LmState state_;            // of the first state_.seen() tokens
  std::vector<text::Token> tokens_;  // the last of them are read with the next prompt
};

}  // namespace mhla::tasks
