// Bodies of requests to a server: what is accepted is within the limits and names known tokens, and everything else is
// an error of a client, as JSON.
#include <algorithm>

#include "cli/serve/completion_request.hpp"
#include "support/small_language_model.hpp"
#include "support/target.hpp"
#include "tasks/language/generation.hpp"

using namespace mhla;

namespace {

constexpr cli::ServeLimits kLimits{.tokens = 20, .answers = 6};

void judge(const cli::CompletionRequest& asked, const tasks::LanguageModel& model) {
  fuzz::expect(asked.tokens >= 1 && asked.tokens <= kLimits.tokens, "tokens beyond the limit");
  fuzz::expect(asked.answers() >= 1 && asked.answers() <= 6, "answers beyond the limit");
  tasks::check(asked.sampling);
  for (const auto& prompt : asked.prompts)
    tasks::check(model,
                 {.prompt = prompt.tokens, .tokens = asked.tokens, .sampling = asked.sampling, .stop = asked.stop});
}

}  // namespace

fuzz::Inputs fuzz::seeds() {
  return {bytes_of(R"({"model": "small", "prompt": "the theme", "max_tokens": 7, "temperature": 0.5, "seed": 1})"),
          bytes_of(R"({"prompt": ["the", "a"], "n": 3, "echo": true, "stop": ["x", "y"], "top_p": 0.9, "top_k": 5})"),
          bytes_of(R"({"prompt": [[256, 257], [3]], "min_p": 0.1, "repetition_penalty": 1.2, "stop": "a"})"),
          bytes_of(R"({"prompt": [1, 2], "stream": true, "stream_options": {"include_usage": true}, "user": null})"),
          bytes_of(R"({"prompt": "", "ignore_eos": true, "logprobs": null, "max_tokens": 20})")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const tasks::LanguageModel model = [] {
    models::LmOptions options = testing::small_language_options();
    options.beyond = "error";
    return testing::small_language_model(options);
  }();
  try {
    judge(cli::read_completion({reinterpret_cast<const char*>(data), size}, model, kLimits), model);
  } catch (const cli::ApiError& error) {
    fuzz::expect(error.status() == 400 || error.status() == 404, "a status that is not the client's fault");
    fuzz::expect(error.json()["error"]["message"].get<std::string>() == error.what(), "an error without its message");
  }
  return 0;
}
