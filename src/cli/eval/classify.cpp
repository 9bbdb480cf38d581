// `mhla eval classify`: how well a trained classifier does.
#include "cli/eval/classify.hpp"

#include <fmt/format.h>

#include <memory>

#include "cli/support/checks.hpp"
#include "cli/support/device.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/output.hpp"
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

}  // namespace

void add_eval_classify(CLI::App& eval) {
  auto* command = eval.add_subcommand("classify", "Accuracy and confusion matrix of an image classifier");
  auto options = std::make_shared<EvalClassifyOptions>();
  command->add_option("--model", options->model, "Weights as `mhla train classify` leaves them")
      ->check(existing_file())
      ->type_name("FILE")
      ->default_str("the one file in the folder pretrained");
  command->add_option("--data", options->evaluation.data, "Images as SPLIT/CLASS/*.jpg|png: a folder or a .tar[.gz]")
      ->required()
      ->check(existing_path())
      ->type_name("PATH");
  command
      ->add_option("--split", options->evaluation.split,
                   "Which part of the images; \"\" where the class folders lie at the top")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--batch", options->evaluation.batch, "Images at a time")
      ->check(within(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  add_device_option(*command, options->device);
  add_amp_option(*command, options->amp);
  command
      ->add_option("--attention", options->evaluation.attention_images,
                   "Also show rank and entropy of the attention, on this many images")
      ->check(within(0, 100000))
      ->type_name("COUNT")
      ->capture_default_str();
  add_threads_option(*command, options->threads);
  command->add_option("--workers", options->evaluation.workers, "Threads that prepare images; 0 is one per core")
      ->check(within(0, 1024))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--out", options->out, "Folder for report.html, confusion.png and evaluation.json")
      ->type_name("FOLDER");
  options->output.add_option(*command);
  command->callback([options] { run_eval_classify(*options); });
}

}  // namespace mhla::cli
