// `mhla eval`: how well trained models do.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.hpp"
#include "cli/machine.hpp"
#include "cli/output.hpp"
#include "cli/train_device.hpp"
#include "io/file.hpp"
#include "tasks/classify/evaluation.hpp"
#include "tasks/classify/evaluation_report.hpp"
#include "tasks/classify/pretrained.hpp"

namespace mhla::cli {
namespace {

struct EvalClassifyOptions {
  tasks::EvaluationOptions evaluation;
  std::string model, device = "auto", amp = "none", out;
  int threads = 0;
  Output output;
};

void run_eval_classify(const EvalClassifyOptions& given) {
  const tasks::EvaluationOptions& options = given.evaluation;
  use_threads(given.threads);
  const at::Device device = choose_device(given.device);
  const std::filesystem::path path = tasks::classifier_path(given.model);
  models::LoadedClassifier loaded = models::load_classifier(path, device);
  const tasks::ClassifyEvaluation evaluation =
      tasks::evaluate_classifier(loaded, path, options, device, uses_bf16(given.amp, device), given.output.text());
  given.output.text() << evaluation_text(evaluation);
  if (!given.out.empty()) {
    const std::filesystem::path folder = given.out;
    io::write_file(folder / "confusion.png", confusion_png(evaluation));
    io::write_file(folder / "report.html", evaluation_page(evaluation));
    io::write_json((folder / "evaluation.json").string(), evaluation_json(evaluation));
    given.output.text() << fmt::format("report: {}\n", (folder / "report.html").string());
  }
  given.output.json(evaluation_json(evaluation));
}

void add_eval_classify(CLI::App& eval) {
  auto* command = eval.add_subcommand("classify", "Accuracy and confusion matrix of an image classifier");
  auto options = std::make_shared<EvalClassifyOptions>();
  command
      ->add_option("--model", options->model, "Weights as `mhla train classify` leaves them; else the pretrained ones")
      ->check(CLI::ExistingFile)
      ->type_name("FILE");
  command->add_option("--data", options->evaluation.data, "Images as SPLIT/CLASS/*.jpg|png: a folder or a .tar[.gz]")
      ->required()
      ->check(CLI::ExistingPath)
      ->type_name("PATH");
  command
      ->add_option("--split", options->evaluation.split,
                   "Which part of the images; \"\": the class folders lie at the top")
      ->capture_default_str();
  command->add_option("--batch", options->evaluation.batch, "Images at a time")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add_device_option(*command, options->device);
  command->add_option("--amp", options->amp, "Matrix products in bf16, or none; auto: bf16 on a GPU")
      ->check(CLI::IsMember({"auto", "bf16", "none"}))
      ->capture_default_str();
  command
      ->add_option("--attention", options->evaluation.attention_images,
                   "Also rank and entropy of the attention on this many images")
      ->check(CLI::Range(0, 100000))
      ->type_name("COUNT")
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads; 0 is torch's own choice")->capture_default_str();
  command->add_option("--workers", options->evaluation.workers, "Threads that prepare images; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_option("--out", options->out, "Folder for report.html, confusion.png and evaluation.json")
      ->type_name("FOLDER");
  options->output.add_option(*command);
  command->callback([options] { run_eval_classify(*options); });
}

}  // namespace

void add_eval(CLI::App& program, Outcome&) {
  auto* eval = program.add_subcommand("eval", "Evaluate a trained model");
  eval->require_subcommand(0, 1);
  eval->callback([eval] {
    if (eval->get_subcommands().empty())
      throw UsageError("eval: what to evaluate is missing; it may be: " + names_of_commands(*eval));
  });
  add_eval_classify(*eval);
}

}  // namespace mhla::cli
