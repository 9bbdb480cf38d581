// `mhla train`: one command per task.
#include <memory>

#include "cli/commands.hpp"
#include "cli/train/classify_run.hpp"

namespace mhla::cli {

void add_train(CLI::App& program, Outcome& outcome) {
  CLI::App& train = add_group(program, "train", "Train a model", "what to train");
  auto* classify = train.add_subcommand("classify", "Train an image classifier with softmax, linear or MHLA attention");
  auto options = std::make_shared<TrainClassifyOptions>();
  add_train_classify_options(*classify, *options);
  classify->footer(
      "Several processes: mpirun -np N mhla train classify ...\n"
      "The first Ctrl-C finishes the step and saves; the same command then goes on from there.");
  classify->callback([options, &outcome] { outcome.exit_code = run_train_classify(*options); });
}

}  // namespace mhla::cli
