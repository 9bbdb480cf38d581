// `mhla eval generate`: how good the pictures of a generator are.
#include "cli/eval/generate.hpp"

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
#include "tasks/classify/pretrained.hpp"
#include "tasks/generate/evaluation_report.hpp"

namespace mhla::cli {
namespace {

struct EvalGenerateOptions {
  tasks::GenerateEvaluationOptions evaluation;
  std::string device = "auto", report;
  int threads = 0;
  Output output;
};

void run_eval_generate(const EvalGenerateOptions& options) {
  if (options.evaluation.model.empty() == options.evaluation.images.empty())
    throw UsageError("one of --model, which draws pictures, and --images, pictures already made, must be given");
  use_threads(options.threads);
  const at::Device device = choose_device(options.device);
  tasks::GenerateEvaluationOptions judging = options.evaluation;
  judging.classifier = tasks::classifier_path(judging.classifier).string();
  const tasks::GenerateEvaluation evaluation = [&] {
    PhaseProgress progress;
    return tasks::evaluate_generator(judging, device, std::ref(progress));
  }();
  options.output.text() << evaluation_text(evaluation);
  if (!options.report.empty()) {
    io::write_file(options.report, evaluation_page(evaluation));
    options.output.text() << fmt::format("report: {}\n", options.report);
  }
  options.output.json(evaluation_json(evaluation));
}

}  // namespace

void add_eval_generate(CLI::App& eval) {
  auto* command = eval.add_subcommand(
      "generate", "Frechet distance, precision, recall and class consistency of drawn pictures, seen by a classifier");
  auto options = std::make_shared<EvalGenerateOptions>();
  tasks::GenerateEvaluationOptions& evaluation = options->evaluation;

  OptionGroup judged(*command, "Pictures");
  judged.add("--model", evaluation.model, "FILE", "Generator that draws them, as `mhla train generate` leaves it")
      ->check(existing_file());
  judged
      .add("--images", evaluation.images, "PATH", "Pictures already made, as CLASS/*.jpg|png: a folder or a .tar[.gz]")
      ->check(existing_path());
  judged
      .add_open("--count", evaluation.count, "N", "Pictures of each class",
                "100; of --images as many as every class has")
      ->check(within(1, 1'000'000));
  judged.add_open("--sampler", evaluation.sampler, "NAME", "How to draw", "ddim, of a flow euler")
      ->check(CLI::IsMember(std::vector<std::string>(tasks::kSamplers.begin(), tasks::kSamplers.end())));
  judged.add("--steps", evaluation.steps, "N", "Steps of drawing")->check(within(1, 1'000'000));
  judged.add("--cfg-scale", evaluation.guidance.scale, "W", "Strength of classifier-free guidance; 1 is none")
      ->check(within(0.0, 1000.0));
  judged.add("--seed", evaluation.seed, "N", "Seed of the noise")->check(at_least<std::uint64_t>(0));

  OptionGroup judge(*command, "Judged by");
  judge
      .add_open("--classifier", evaluation.classifier, "FILE",
                "Classifier of the same classes, of `mhla train classify`",
                "the one classifier in the folder pretrained")
      ->check(existing_file());
  judge.add("--data", evaluation.data, "PATH", "Real pictures as SPLIT/CLASS/*.jpg|png: a folder or a .tar[.gz]")
      ->required()
      ->check(existing_path());
  judge.add("--split", evaluation.split, "NAME", "Which of them; \"\" where the class folders lie at the top");

  OptionGroup run(*command, "Run");
  run.add("--batch", evaluation.batch, "N", "Pictures that a network sees at a time")->check(within(1, 1 << 20));
  add_device_option(*command, options->device)->group("Run");
  add_threads_option(*command, options->threads)->group("Run");
  command->add_option("--report", options->report, "Also write a page with pictures of each class")
      ->type_name("FILE")
      ->group("Run");
  options->output.add_option(*command);
  command->callback([options] { run_eval_generate(*options); });
}

}  // namespace mhla::cli
