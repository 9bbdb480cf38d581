// What a command line of `mhla generate` asks for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/language/generation.hpp"

namespace mhla::cli {

struct GenerateOptions {
  std::string model, tokenizer, beyond, state;
  std::string device = "auto", dtype = "auto";
  std::vector<std::string> prompts;
  std::string prompt_file;
  bool chat = false;
  std::int64_t count = 1;
  tasks::GenerationRequest request;  // of every answer, but for its prompt
};

}  // namespace mhla::cli
