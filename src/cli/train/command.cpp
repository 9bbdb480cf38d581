// `mhla train`: one command per task.
#include <memory>

#include "cli/commands.hpp"
#include "cli/support/device.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/output.hpp"
#include "cli/train/classify_options.hpp"
#include "tasks/classify/training.hpp"

namespace mhla::cli {
namespace {

struct TrainClassify {
  tasks::TrainClassifyOptions options;
  Output output;
};

int run_train_classify(const TrainClassify& given) {
  const auto& [options, output] = given;
  use_threads(options.threads);
  const auto communicator = train::make_communicator();
  const at::Device device = choose_device(options.device, communicator->local_rank());
  const tasks::TrainingDevice place{device, device_name(device), uses_bf16(options.amp, device)};
  const tasks::TrainedClassifier trained = tasks::train_classifier(options, place, *communicator, output.text());
  if (communicator->leads())
    output.json({{"finished", trained.finished},
                 {"steps", trained.steps},
                 {"results", trained.results},
                 {"bad_images", trained.bad_images},
                 {"settings", trained.settings},
                 {"weights", trained.weights.string()}});
  return trained.finished ? 0 : 1;
}

}  // namespace

void add_train(CLI::App& program, Outcome& outcome) {
  CLI::App& train = add_group(program, "train", "Train a model", "what to train");
  auto* classify = train.add_subcommand("classify", "Train an image classifier with softmax, linear or MHLA attention");
  auto given = std::make_shared<TrainClassify>();
  add_train_classify_options(*classify, given->options);
  given->output.add_option(*classify);
  classify->footer(
      "Several processes: mpirun -np N mhla train classify ...\n"
      "The first Ctrl-C finishes the step and saves; the same command then goes on from there.");
  classify->callback([given, &outcome] { outcome.exit_code = run_train_classify(*given); });
}

}  // namespace mhla::cli
