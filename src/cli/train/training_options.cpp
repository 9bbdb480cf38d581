// Flags of the training engine.
#include "cli/train/training_options.hpp"

#include "cli/support/checks.hpp"
#include "cli/support/device.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/option_group.hpp"

namespace mhla::cli {
namespace {

CLI::Validator steps() { return at_least<std::int64_t>(0); }

}  // namespace

void add_batch_options(CLI::App& command, tasks::TrainingOptions& options) {
  OptionGroup group(command, kRecipeHeading);
  group.add_open("--batch", options.batch, "N", "Images of a batch, over all processes")->check(within(1, 1 << 20));
  group.add("--accumulate", options.accumulate, "N", "Batches of an optimiser step")->check(within(1, 1 << 20));
}

void add_init_option(CLI::App& command, tasks::TrainingOptions& options) {
  OptionGroup(command, kModelHeading)
      .add("--init", options.init, "FILE", "Begin with the weights of this .safetensors file, as far as they fit")
      ->check(existing_file());
}

void add_optimisation_options(CLI::App& command, tasks::TrainingOptions& options, const char* min_lr) {
  OptionGroup group(command, kRecipeHeading);
  group.add_open("--lr", options.lr, "RATE", "Highest learning rate")->check(above_zero());
  group.add_open("--min-lr", options.min_lr, "RATE", "Learning rate at the end", min_lr)->check(at_least(0.0));
  group.add("--mixing-lr", options.mixing_lr, "FACTOR", "Learning rate of the mixing matrices, relative to --lr")
      ->check(at_least(0.0));
  group.add("--schedule", options.schedule, "NAME", "How the learning rate falls")
      ->check(CLI::IsMember({"cosine", "linear", "constant"}));
  group.add_open("--warmup", options.warmup, "STEPS", "Steps until the learning rate is highest")->check(steps());
  group
      .add_open("--weight-decay", options.weight_decay, "RATE",
                "Weight decay of matrices; norms, biases, positions and mixing have none")
      ->check(at_least(0.0));
  group.add_open("--clip", options.clip, "NORM", "Largest norm of the gradients; 0 is no limit")->check(at_least(0.0));
  group
      .add_open("--ema", options.ema, "DECAY", "Decay of the average of weights that is evaluated and kept; 0 is none")
      ->check(within(0.0, 0.999999));
}

void add_loading_options(CLI::App& command, tasks::TrainingOptions& options) {
  OptionGroup group(command, kImagesHeading);
  group
      .add("--cache", options.cache, "NAME",
           "Decode images once and keep them in memory; auto is on where they need less than 8 GB")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  group.add("--workers", options.workers, "N", "Threads that prepare images; 0 is one per core")
      ->check(within(0, 1024));
}

void add_run_options(CLI::App& command, tasks::TrainingOptions& options) {
  constexpr const char* kHeading = "Run";
  OptionGroup group(command, kHeading);
  group.add("--out", options.out, "FOLDER", "Folder for weights, checkpoints, metrics and report");
  group.add("--seed", options.seed, "N", "Seed of initial weights, order and augmentation")
      ->check(at_least<std::uint64_t>(0));
  add_device_option(command, options.device)->group(kHeading);
  add_amp_option(command, options.amp)->group(kHeading);
  add_threads_option(command, options.threads)->group(kHeading);
  group
      .add("--resume", options.resume, "NAME",
           "auto goes on from the newest checkpoint in --out; none starts anew, replacing what is there")
      ->check(CLI::IsMember({"auto", "none"}));
  group.add("--log-every", options.log_every, "STEPS", "Steps between two lines; 0 is an epoch")->check(steps());
  group.add("--eval-every", options.eval_every, "STEPS", "Steps between two validations; 0 is an epoch")
      ->check(steps());
  group.add("--checkpoint-every", options.checkpoint_every, "STEPS", "Steps between two checkpoints; 0 is an epoch")
      ->check(steps());
  group.add("--keep", options.keep, "N", "Checkpoints to keep")->check(within(1, 1000000));
  group.flag("--half", options.half, "Store model.safetensors in half precision");
}

}  // namespace mhla::cli
