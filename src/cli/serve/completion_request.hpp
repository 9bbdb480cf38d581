// What a client of /v1/completions asks for.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.hpp"
#include "tasks/language/language_model.hpp"
#include "tasks/language/sampling.hpp"

namespace mhla::cli {

// A refusal as clients of such servers know it.
class ApiError : public std::exception {
 public:
  ApiError(int status, const std::string& message, std::string field = "", std::string code = "");

  int status() const { return status_; }
  const char* what() const noexcept override { return message_.c_str(); }
  io::Json json() const;  // {"error": {"message", "type", "param", "code"}}

 private:
  int status_;
  std::string message_, field_, code_;
};

struct ServeLimits {
  std::int64_t tokens = 4096;  // of an answer
  std::int64_t answers = 128;  // to one request
};

struct CompletionRequest {
  struct Prompt {
    std::string text;  // for echo
    std::vector<text::Token> tokens;
  };
  std::vector<Prompt> prompts;
  std::int64_t tokens = 16, n = 1;
  tasks::SamplingOptions sampling{};
  std::vector<std::string> stop;
  bool past_end = false, echo = false, stream = false, include_usage = false;

  std::int64_t prompt_tokens() const;
  std::size_t answers() const { return prompts.size() * static_cast<std::size_t>(n); }
};

// Throws an ApiError that names the field, what it was and what it may be.
CompletionRequest read_completion(std::string_view body, const tasks::LanguageModel& model, const ServeLimits& limits);

}  // namespace mhla::cli
