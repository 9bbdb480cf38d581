// `mhla generate`: text that a language model goes on with.
#include <memory>

#include "cli/commands.hpp"
#include "cli/generate/answers.hpp"
#include "cli/generate/chat.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/device.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/option_group.hpp"

namespace mhla::cli {
namespace {

constexpr std::int64_t kMostTokens = 1'000'000'000, kMostAnswers = 1 << 16;

struct GenerateCommand {
  GenerateOptions options;
  int threads = 0;
  Output output;
};

int run_generate(const GenerateCommand& given) {
  use_threads(given.threads);
  return given.options.chat ? chat(given.options, given.output) : answer_prompts(given.options, given.output);
}

void add_prompt(CLI::App& command, GenerateOptions& options) {
  OptionGroup group(command, "Prompt");
  auto* const text = group
                         .add_open("-p,--prompt", options.prompts, "TEXT",
                                   "What the text begins with; several make a batch", "nothing")
                         ->expected(1)
                         ->allow_extra_args(false)
                         ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  auto* const file = group.add_open("--prompt-file", options.prompt_file, "FILE",
                                    "The prompt from a file; \"-\" is the standard input", "");
  auto* const chat =
      command.add_flag("--chat", options.chat, "Line by line on the terminal: the model goes on after each line")
          ->group("Prompt");
  group.add("--count", options.count, "K", "Answers to each prompt")->check(within<std::int64_t>(1, kMostAnswers));
  group.add_open("--state", options.state, "FILE",
                 "Go on from the conversation in this file where it exists, and save it there at the end", "");
  file->excludes(text);
  chat->excludes(text)->excludes(file);
}

void add_model(CLI::App& command, GenerateCommand& given) {
  GenerateOptions& options = given.options;
  OptionGroup group(command, "Model");
  group.add_open("--model", options.model, "PATH",
                 "Language model: a .safetensors file or folder of `mhla train language`, or a folder of transformers",
                 "the one in the folder pretrained");
  group.add_open("--tokenizer", options.tokenizer, "PATH", "Its tokenizer, a file or a folder of one",
                 "beside the model");
  group
      .add_open("--beyond", options.beyond, "POLICY", "What MHLA does with more blocks than it was trained for",
                "the model's own")
      ->check(CLI::IsMember({"error", "clamp", "running-mean", "interpolate"}));
  add_device_option(command, options.device)->group("Model");
  group.add("--dtype", options.dtype, "NAME", "Type of weights and activations; auto is bf16 on a GPU, else f32")
      ->check(CLI::IsMember({"auto", "f32", "bf16"}));
  add_threads_option(command, given.threads)->group("Model");
}

void add_sampling(CLI::App& command, tasks::GenerationRequest& request) {
  OptionGroup group(command, "Answer");
  tasks::SamplingOptions& sampling = request.sampling;
  group.add("--tokens", request.tokens, "N", "Tokens of an answer, at most")
      ->check(within<std::int64_t>(1, kMostTokens));
  group.add("--temperature", sampling.temperature, "T", "0 takes the most likely token; 1 draws from the distribution")
      ->check(at_least(0.0));
  group.add("--top-k", sampling.top_k, "K", "Draw from the K most likely tokens; 0: from all")
      ->check(at_least<std::int64_t>(0));
  group
      .add("--top-p", sampling.top_p, "P",
           "Draw from the fewest most likely tokens that have this probability together")
      ->check(within(0.0, 1.0));
  group.add("--min-p", sampling.min_p, "P", "Draw from tokens at least this many times as likely as the most likely")
      ->check(within(0.0, 1.0));
  group
      .add("--repetition-penalty", sampling.repetition_penalty, "R",
           "Above 1, tokens that came before become less likely")
      ->check(above_zero());
  group.add_open("--stop", request.stop, "TEXT", "End the answer before this text; can be given several times", "")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  group.flag("--past-end", request.past_end, "Go on where the model ends the text");
  group.add("--seed", sampling.seed, "X", "Seed of the draws; the same seed gives the same answer")
      ->check(at_least<std::uint64_t>(0));
}

}  // namespace

void add_generate(CLI::App& program, Outcome& outcome) {
  auto given = std::make_shared<GenerateCommand>();
  auto* command = program.add_subcommand("generate", "Go on with a text, by a language model");
  add_prompt(*command, given->options);
  add_sampling(*command, given->options.request);
  add_model(*command, *given);
  given->output.add_option(*command);
  command->callback([given, &outcome] { outcome.exit_code = run_generate(*given); });
}

}  // namespace mhla::cli
