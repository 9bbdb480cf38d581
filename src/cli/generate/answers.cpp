// One sequence, of which a state may be kept, or several.
#include "cli/generate/answers.hpp"

#include <fmt/format.h>

#include <iostream>

#include "cli/commands.hpp"
#include "cli/support/progress.hpp"
#include "io/file.hpp"
#include "train/interrupt.hpp"

namespace mhla::cli {
namespace {

constexpr int kInterrupted = 130;  // as shells have it

// Progress while prompts are read; the text of the answer, where there is one alone, as it comes.
class Listener {
 public:
  Listener(const Output& output, std::int64_t prompt_tokens, bool alone)
      : output_(output), alone_(alone), reading_("reading the prompt", static_cast<double>(prompt_tokens)) {}

  tasks::GenerationWatch watch() {
    return {.read =
                [this](std::int64_t tokens) {
                  reading_.advance(static_cast<double>(tokens));
                  return !train::InterruptGuard::requested();
                },
            .say =
                [this](std::size_t /*request*/, const std::string& text) {
                  reading_.finish();
                  if (alone_) say(output_, text);
                  return !train::InterruptGuard::requested();
                }};
  }

 private:
  const Output& output_;
  bool alone_;
  Progress reading_;
};

struct Asked {
  std::string prompt;
  std::int64_t number;  // of the answer to this prompt
};

void print_all(const Output& output, const std::vector<Asked>& asked, const std::vector<tasks::Answer>& answers) {
  for (std::size_t i = 0; i < answers.size(); ++i) {
    output.text() << fmt::format("{}--- answer {} of {}\n", i == 0 ? "" : "\n", i + 1, answers.size()) << std::flush;
    say(output, asked[i].prompt + answers[i].text + "\n");
  }
}

io::Json answers_json(const std::vector<Asked>& asked, const std::vector<tasks::Answer>& answers) {
  io::Json json = io::Json::array();
  for (std::size_t i = 0; i < answers.size(); ++i) {
    io::Json each = {{"prompt", asked[i].prompt}, {"number", asked[i].number}};
    each.update(answer_json(answers[i]));
    json.push_back(each);
  }
  return json;
}

// A request that cannot be is the fault of the command line.
template <typename Call>
auto as_usage(const Call& call) {
  try {
    return call();
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

int answer_prompts(const GenerateOptions& options, const Output& output) {
  const std::vector<std::string> prompts = prompts_of(options);
  const bool alone = prompts.size() == 1 && options.count == 1;
  if (!options.state.empty() && !alone)
    throw UsageError("--state is for one prompt and one answer: it keeps one conversation");
  const tasks::LanguageModel model = open_model(options);
  const train::InterruptGuard interrupts("\nending the answer; once more stops at once\n");
  std::vector<Asked> asked;
  std::vector<tasks::GenerationRequest> requests;
  tasks::Conversation conversation = conversation_of(options, model);
  std::int64_t prompt_tokens = 0;
  for (const std::string& prompt : prompts)
    for (std::int64_t number = 0; number < options.count; ++number) {
      asked.push_back({prompt, number});
      requests.push_back(options.request);
      requests.back().sequence = static_cast<std::uint64_t>(number);
      requests.back().prompt = tokens_of_prompt(model, prompt, conversation.tokens().empty());
      if (number == 0) prompt_tokens += std::ssize(requests.back().prompt);
      as_usage([&] { check(model, requests.back(), std::ssize(conversation.tokens())); });
    }
  Listener listener(output, prompt_tokens, alone);
  tasks::GenerationTimes times;
  std::vector<tasks::Answer> answers;
  if (alone)
    answers.push_back(conversation.answer(requests.front(), listener.watch(), &times));
  else
    answers = tasks::generate(model, requests, listener.watch(), &times);
  if (alone)
    say(output, "\n");
  else
    print_all(output, asked, answers);
  std::cerr << times_line(times) << std::endl;
  if (!options.state.empty()) io::write_file(options.state, conversation.save());
  output.json({{"model", model.name}, {"answers", answers_json(asked, answers)}, {"times", times_json(times)}});
  return train::InterruptGuard::requested() ? kInterrupted : 0;
}

}  // namespace mhla::cli
