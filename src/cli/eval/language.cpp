// `mhla eval language`: perplexity, questions and recall of a language model.
#include "cli/eval/language.hpp"

#include <fmt/format.h>

#include <functional>
#include <memory>

#include "cli/eval/phase_progress.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/device.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/option_group.hpp"
#include "cli/support/output.hpp"
#include "io/file.hpp"
#include "tasks/language/evaluation_report.hpp"

namespace mhla::cli {
namespace {

struct EvalLanguage {
  std::string model, tokenizer, beyond;
  tasks::LanguageEvaluationOptions evaluation;
  tasks::ZeroShotOptions questions;
  std::string tasks;
  bool recall = false;
  tasks::RecallOptions recalled;
  std::string device = "auto", amp = "none", out, answers;
  int threads = 0;
  Output output;
};

tasks::LanguageEvaluationOptions options_of(const EvalLanguage& given, at::Device device) {
  tasks::LanguageEvaluationOptions options = given.evaluation;
  const tasks::PerplexityOptions& reading = options.perplexity;
  if (options.data.empty() && given.tasks.empty() && !given.recall)
    throw UsageError("one of --data, --tasks and --recall must be given");
  if (reading.stride > reading.context)
    throw UsageError(fmt::format("--stride is {}; it may be at most --context, {}", reading.stride, reading.context));
  if (given.tasks.empty() && !given.questions.tasks.empty())
    throw UsageError("--task needs --tasks, which names the questions");
  if (given.tasks.empty() && !given.answers.empty())
    throw UsageError("--answers needs --tasks, which names the questions");
  if (!given.tasks.empty()) {
    options.questions = given.questions;
    options.questions->files = given.tasks;
  }
  if (given.recall) options.recall = given.recalled;
  options.keep_answers = !given.answers.empty();
  options.bf16 = uses_bf16(given.amp, device);
  return options;
}

void run_eval_language(const EvalLanguage& given) {
  use_threads(given.threads);
  const at::Device device = choose_device(given.device);
  const tasks::LanguageEvaluationOptions options = options_of(given, device);
  const tasks::LanguageModel model = tasks::open_language_model(given.model, given.tokenizer, device, given.beyond);
  const tasks::LanguageEvaluation evaluation = [&] {
    PhaseProgress progress;
    return tasks::evaluate_language(model, options, std::ref(progress));
  }();
  given.output.text() << evaluation_text(evaluation);
  if (!given.out.empty()) {
    const std::filesystem::path folder = given.out;
    io::write_file(folder / "report.html", evaluation_page(evaluation));
    io::write_json((folder / "evaluation.json").string(), evaluation_json(evaluation));
    given.output.text() << fmt::format("report: {}\n", (folder / "report.html").string());
  }
  if (!given.answers.empty()) {
    io::write_file(given.answers, evaluation.answers);
    given.output.text() << fmt::format("answers: {}\n", given.answers);
  }
  given.output.json(evaluation_json(evaluation));
}

void add_model_options(CLI::App& command, EvalLanguage& given) {
  OptionGroup model(command, "Model");
  model
      .add("--model", given.model, "PATH",
           "Folder or .safetensors file of `mhla train language`, or folder of transformers")
      ->required()
      ->check(existing_path());
  model.add_open("--tokenizer", given.tokenizer, "PATH", "Its tokenizer", "what lies beside the model")
      ->check(existing_path());
  model
      .add_open("--beyond", given.beyond, "NAME", "What MHLA does with more blocks than it was trained for",
                "the model's own")
      ->check(CLI::IsMember({"error", "clamp", "interpolate", "running-mean"}));
}

void add_text_options(CLI::App& command, tasks::LanguageEvaluationOptions& evaluation) {
  OptionGroup text(command, "Text to predict");
  text.add_open("--data", evaluation.data, "PATH",
                "Text as `mhla tokenize` reads it, or folders it wrote; several may be given", "none")
      ->check(existing_path());
  text.add("--context", evaluation.perplexity.context, "N",
           "Tokens of a window, which sees nothing before it; 0 is whole documents")
      ->check(at_least<std::int64_t>(0));
  text.add("--stride", evaluation.perplexity.stride, "N",
           "From one window to the next; 0 is --context: pieces without overlap")
      ->check(at_least<std::int64_t>(0));
  text.add("--documents", evaluation.most_documents, "N", "The first documents; 0 is all")
      ->check(at_least<std::int64_t>(0));
}

void add_question_options(CLI::App& command, EvalLanguage& given) {
  OptionGroup questions(command, "Questions");
  questions.add_open("--tasks", given.tasks, "PATH", "Questions as TASK.jsonl: a folder or a .tar[.gz]", "none")
      ->check(existing_path());
  std::vector<std::string> names;
  for (const tasks::TaskKind& kind : tasks::task_kinds()) names.emplace_back(kind.name);
  questions
      .add_open("--task", given.questions.tasks, "NAME", "Some of them; several may be given", "all that are there")
      ->check(CLI::IsMember(names));
  questions.add("--limit", given.questions.limit, "N", "The first questions of each task; 0 is all")
      ->check(at_least<std::int64_t>(0));
  questions.add("--answers", given.answers, "FILE",
                "Write what was asked and how likely each choice is, as JSON lines");
  questions.add("--shots", given.questions.shots, "N", "Examples before each question of mmlu")
      ->check(within<std::int64_t>(0, 100));
}

void add_recall_options(CLI::App& command, EvalLanguage& given) {
  OptionGroup recall(command, "Recall");
  recall.flag("--recall", given.recall, "Ask for pairs of a key and a value, and for a fact hidden in a text");
  recall
      .add_open("--lengths", given.recalled.lengths, "N", "Tokens of a text; several may be given",
                "of 256, 512, 1024 and 2048 those the model takes")
      ->check(at_least<std::int64_t>(tasks::kShortestRecall));
  recall.add("--pairs", given.recalled.most_pairs, "N", "Most pairs of a text")
      ->check(within<std::int64_t>(4, 1 << 20));
  recall.add("--samples", given.recalled.documents, "N", "Texts for each length and number of pairs")
      ->check(within<std::int64_t>(1, 1'000'000));
  recall.add("--needles", given.recalled.needles, "N", "Texts for each length and depth of the fact")
      ->check(within<std::int64_t>(1, 1'000'000));
  recall.add("--seed", given.recalled.seed, "N", "Seed of the texts")->check(at_least<std::uint64_t>(0));
}

}  // namespace

void add_eval_language(CLI::App& eval) {
  auto* command = eval.add_subcommand("language", "Perplexity, questions and recall of a language model");
  auto given = std::make_shared<EvalLanguage>();
  add_model_options(*command, *given);
  add_text_options(*command, given->evaluation);
  add_question_options(*command, *given);
  add_recall_options(*command, *given);
  OptionGroup run(*command, "Run");
  run.add("--batch", given->evaluation.tokens_at_once, "N", "Tokens that the model sees at a time")
      ->check(within<std::int64_t>(1, std::int64_t{1} << 30));
  add_device_option(*command, given->device)->group("Run");
  add_amp_option(*command, given->amp)->group("Run");
  add_threads_option(*command, given->threads)->group("Run");
  command->add_option("--out", given->out, "Folder for report.html and evaluation.json")
      ->type_name("FOLDER")
      ->group("Run");
  given->output.add_option(*command);
  command->callback([given] { run_eval_language(*given); });
}

}  // namespace mhla::cli
