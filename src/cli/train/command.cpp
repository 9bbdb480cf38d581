// `mhla train`: one command per task.
#include <memory>

#include "cli/commands.hpp"
#include "cli/support/device.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/output.hpp"
#include "cli/train/classify_options.hpp"
#include "cli/train/generate_options.hpp"
#include "cli/train/language_options.hpp"
#include "tasks/classify/training.hpp"
#include "tasks/generate/training.hpp"
#include "tasks/language/training.hpp"

namespace mhla::cli {
namespace {

constexpr const char* kFooter =
    "Several processes: mpirun -np N mhla train ...\n"
    "The first Ctrl-C finishes the step and saves; the same command then goes on from there.";

io::Json summary(const tasks::TrainedClassifier& trained) {
  return {{"finished", trained.finished},     {"steps", trained.steps},       {"results", trained.results},
          {"bad_images", trained.bad_images}, {"settings", trained.settings}, {"weights", trained.weights.string()}};
}
template <typename Trained>
io::Json summary(const Trained& trained) {
  return {{"finished", trained.finished},
          {"steps", trained.steps},
          {"results", trained.results},
          {"settings", trained.settings},
          {"weights", trained.weights.string()}};
}

template <typename Options, typename Train>
int run(const Options& options, const Output& output, Train train) {
  use_threads(options.threads);
  const auto communicator = train::make_communicator();
  const at::Device device = choose_device(options.device, communicator->local_rank());
  const tasks::TrainingDevice place{device, device_name(device), uses_bf16(options.amp, device)};
  const auto trained = train(options, place, *communicator, output.text());
  if (communicator->leads()) output.json(summary(trained));
  return trained.finished ? 0 : 1;
}

template <typename Options, typename Train>
void add_task(CLI::App& group, Outcome& outcome, const char* name, const char* about,
              void (*add_options)(CLI::App&, Options&), Train train) {
  struct Given {
    Options options;
    Output output;
  };
  auto* command = group.add_subcommand(name, about);
  auto given = std::make_shared<Given>();
  add_options(*command, given->options);
  given->output.add_option(*command);
  command->footer(kFooter);
  command->callback([given, train, &outcome] { outcome.exit_code = run(given->options, given->output, train); });
}

}  // namespace

void add_train(CLI::App& program, Outcome& outcome) {
  CLI::App& group = add_group(program, "train", "Train a model", "what to train");
  add_task(group, outcome, "classify", "Train an image classifier with softmax, linear or MHLA attention",
           add_train_classify_options, tasks::train_classifier);
  add_task(group, outcome, "generate",
           "Train an image generator (DiT, DiG) with softmax, linear, MHLA or GLA attention",
           add_train_generate_options, tasks::train_generator);
  add_task(group, outcome, "language", "Train a language model with softmax, linear, GLA or MHLA attention",
           add_train_language_options, tasks::train_language_model);
}

}  // namespace mhla::cli
