// `mhla train`: one subcommand per task.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.hpp"
#include "cli/train_classify_run.hpp"

namespace mhla::cli {

void add_train(CLI::App& program, Outcome& outcome) {
  auto* train = program.add_subcommand("train", "Train a model");
  train->require_subcommand(0, 1);
  train->callback([train] {
    if (train->get_subcommands().empty())
      throw UsageError("train: what to train is missing; it may be: " + names_of_commands(*train));
  });
  auto* classify =
      train->add_subcommand("classify", "Train an image classifier with softmax, linear or MHLA attention");
  auto options = std::make_shared<TrainClassifyOptions>();
  add_train_classify_options(*classify, *options);
  classify->footer(
      "\n[recipe]: the default depends on --recipe. Several processes: mpirun -np N mhla train classify ...\n"
      "The first Ctrl-C finishes the step and saves; the same command then goes on from there.");
  classify->callback([options, &outcome] { outcome.exit_code = run_train_classify(*options); });
}

}  // namespace mhla::cli
