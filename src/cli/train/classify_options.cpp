// Flags and recipes of `mhla train classify`.
#include "cli/train/classify_options.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.hpp"
#include "cli/support/device.hpp"
#include "cli/support/number_checks.hpp"

namespace mhla::cli {
namespace {

void add_model_options(CLI::App& command, TrainClassifyOptions& options) {
  constexpr const char* kGroup = "Model";
  models::ClassifierOptions& model = options.model;
  command.add_option("--model", model.model, "Architecture")
      ->check(CLI::IsMember({"deit_tiny", "deit_small", "deit_base", "vlt_tiny", "vlt_small", "vlt_base"}))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--preset", model.preset, "paper, or authors: as the authors' code computes")
      ->check(CLI::IsMember({"paper", "authors"}))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--attention", model.attention, "softmax, linear or mhla: one for all layers or one per layer")
      ->delimiter(',')
      ->check(CLI::IsMember({"softmax", "linear", "mhla"}))
      ->type_name("NAME")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--image-size", options.image_size, "Height and width, or one number for both [recipe]")
      ->expected(1, 2)
      ->check(CLI::Range(1, 16384))
      ->group(kGroup);
  command.add_option("--patch", options.patch, "Side of a patch [recipe]")->check(CLI::Range(1, 1024))->group(kGroup);
  command.add_option("--blocks", model.blocks, "Blocks of tokens per axis; M is their product")
      ->expected(2)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--width", model.width, "Channels; 0: the model's own")->capture_default_str()->group(kGroup);
  command.add_option("--depth", model.depth, "Layers; 0: the model's own")->capture_default_str()->group(kGroup);
  command.add_option("--heads", model.heads, "Heads; 0: the model's own")->capture_default_str()->group(kGroup);
  command.add_flag("--no-lepe", options.no_lepe, "Leave out the 5x5 convolution on the values")->group(kGroup);
  command.add_option("--mixing-init", model.mixing_init, "How the mixing matrices start: paper, uniform, linear, ...")
      ->capture_default_str()
      ->group(kGroup);
  command.add_flag("--mixing-frozen", model.mixing_frozen, "Do not train the mixing matrices")->group(kGroup);
  command.add_option("--drop-path", options.drop_path, "Rate of the last layer [recipe]")
      ->check(CLI::Range(0.0, 0.99))
      ->group(kGroup);
  command.add_flag("--recompute", model.recompute, "Compute activations again in the backward pass: less memory")
      ->group(kGroup);
  command.add_option("--init", options.init, "Begin with the weights of this .safetensors file, as far as they fit")
      ->check(CLI::ExistingFile)
      ->type_name("FILE")
      ->group(kGroup);
}

void add_recipe_options(CLI::App& command, TrainClassifyOptions& options) {
  constexpr const char* kGroup = "Recipe";
  command
      .add_option("--recipe", options.recipe,
                  "Where defaults come from: small (64 px, 30 epochs) or deit (224 px, 300)")
      ->check(CLI::IsMember({"small", "deit"}))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--epochs", options.epochs, "Passes over the training images [recipe]")
      ->check(CLI::Range(1e-6, 1e6))
      ->group(kGroup);
  command.add_option("--batch", options.batch, "Images of a batch, over all processes [recipe]")
      ->check(CLI::Range(1, 1 << 20))
      ->group(kGroup);
  command.add_option("--accumulate", options.accumulate, "Batches of a step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--lr", options.lr, "Highest learning rate [recipe]")->check(kPositive)->group(kGroup);
  command.add_option("--min-lr", options.min_lr, "Lowest, at the end")
      ->check(kNonNegative)
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--schedule", options.schedule, "How it falls")
      ->check(CLI::IsMember({"cosine", "linear", "constant"}))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--warmup", options.warmup, "Steps until it is highest [recipe]")
      ->check(kNonNegative)
      ->group(kGroup);
  command
      .add_option("--weight-decay", options.weight_decay,
                  "Of matrices; not of norms, biases, positions and mixing [recipe]")
      ->check(kNonNegative)
      ->group(kGroup);
  command.add_option("--clip", options.clip, "Largest norm of the gradients; 0: no limit [recipe]")
      ->check(kNonNegative)
      ->group(kGroup);
  command.add_option("--ema", options.ema, "Decay of the weight average that is evaluated and kept; 0: none [recipe]")
      ->check(CLI::Range(0.0, 0.999999))
      ->group(kGroup);
}

void add_data_options(CLI::App& command, TrainClassifyOptions& options) {
  constexpr const char* kGroup = "Images";
  command.add_option("--augment", options.augment, "none, light (shifts, flips, turns) or deit [recipe]")
      ->check(CLI::IsMember({"none", "light", "deit"}))
      ->group(kGroup);
  command.add_option("--rand-augment", options.rand_augment, "RandAugment, such as rand-m9-mstd0.5-inc1; none: off")
      ->type_name("TEXT")
      ->group(kGroup);
  const auto number = [&](const char* flag, std::optional<double>& value, const char* about) {
    command.add_option(flag, value, about)->check(kNonNegative)->group(kGroup);
  };
  number("--mixup", options.mixup, "Alpha of mixup; 0: off");
  number("--cutmix", options.cutmix, "Alpha of CutMix; 0: off");
  number("--smoothing", options.smoothing, "Of labels");
  number("--erasing", options.erasing, "Probability of random erasing");
  number("--color-jitter", options.color_jitter, "Strength; has no effect beside RandAugment");
  command.add_option("--mean", options.mean, "Of red, green, blue in 0..1; unless given, measured on training images")
      ->expected(3)
      ->group(kGroup);
  command.add_option("--std", options.deviation, "Standard deviations, given together with --mean")
      ->expected(3)
      ->group(kGroup);
  command
      .add_option("--cache", options.cache,
                  "Decode images once and keep them in memory; auto: where they need less than 8 GB")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--workers", options.workers, "Threads that prepare images; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->group(kGroup);
}

void add_run_options(CLI::App& command, TrainClassifyOptions& options) {
  constexpr const char* kGroup = "Run";
  command.add_option("--out", options.out, "Folder for weights, checkpoints, metrics and report")
      ->type_name("FOLDER")
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--seed", options.seed, "Of initial weights, order and augmentation")
      ->capture_default_str()
      ->group(kGroup);
  add_device_option(command, options.device)->group(kGroup);
  command.add_option("--amp", options.amp, "Matrix products in bf16, or none; auto: bf16 on a GPU")
      ->check(CLI::IsMember({"auto", "bf16", "none"}))
      ->capture_default_str()
      ->group(kGroup);
  command.add_option("--threads", options.threads, "Threads of torch and the operator; 0: torch's own choice")
      ->capture_default_str()
      ->group(kGroup);
  command
      .add_option("--resume", options.resume,
                  "auto: go on from the newest checkpoint in --out; none: start anew, replacing what is there")
      ->check(CLI::IsMember({"auto", "none"}))
      ->capture_default_str()
      ->group(kGroup);
  const auto interval = [&](const char* flag, std::int64_t& value, const char* about) {
    command.add_option(flag, value, about)->check(kNonNegative)->capture_default_str()->group(kGroup);
  };
  interval("--log-every", options.log_every, "Steps between two lines; 0: an epoch");
  interval("--eval-every", options.eval_every, "Steps between two validations; 0: an epoch");
  interval("--checkpoint-every", options.checkpoint_every, "Steps between two checkpoints; 0: an epoch");
  command.add_option("--keep", options.keep, "Checkpoints to keep")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str()
      ->group(kGroup);
  command.add_flag("--half", options.half, "Store model.safetensors in half precision")->group(kGroup);
}

}  // namespace

void add_train_classify_options(CLI::App& command, TrainClassifyOptions& options) {
  command
      .add_option("--data", options.data,
                  "Images as train/CLASS/*.jpg|png, and val and test likewise: a folder or a .tar[.gz]")
      ->required()
      ->check(CLI::ExistingPath)
      ->type_name("PATH");
  add_model_options(command, options);
  add_recipe_options(command, options);
  add_data_options(command, options);
  add_run_options(command, options);
  options.output.add_option(command);
}

ClassifyRecipe resolve_recipe(const TrainClassifyOptions& options) {
  const bool small = options.recipe == "small";
  const double lr = options.lr.value_or(1e-3);
  ClassifyRecipe recipe{.epochs = options.epochs.value_or(small ? 30.0 : 300.0),
                        .lr = lr,
                        .warmup_from = std::min(1e-6, lr),
                        .weight_decay = options.weight_decay.value_or(0.05),
                        .clip = options.clip.value_or(small ? 1.0 : 0.0),
                        .ema = options.ema.value_or(small ? 0.0 : 0.9996),
                        .batch = options.batch.value_or(small ? 256 : 1024),
                        .warmup_epochs = small ? 3.0 : 10.0,
                        .augmentation = data::augmentation_preset(
                            !options.augment.empty() ? options.augment : (small ? "light" : "deit")),
                        .model = options.model};
  data::Augmentation& augmentation = recipe.augmentation;
  if (options.rand_augment == "none")
    augmentation.rand_augment.reset();
  else if (!options.rand_augment.empty())
    augmentation.rand_augment = data::parse_rand_augment(options.rand_augment);
  augmentation.mixup = options.mixup.value_or(augmentation.mixup);
  augmentation.cutmix = options.cutmix.value_or(augmentation.cutmix);
  augmentation.smoothing = options.smoothing.value_or(augmentation.smoothing);
  augmentation.erasing = options.erasing.value_or(augmentation.erasing);
  augmentation.color_jitter = options.color_jitter.value_or(augmentation.color_jitter);
  try {
    data::validate(augmentation);
  } catch (const Error& error) {
    throw UsageError(fmt::format("augmentation: {}", error.what()));
  }
  if (options.mean.empty() != options.deviation.empty()) throw UsageError("--mean and --std go together");
  models::ClassifierOptions& model = recipe.model;
  const std::int64_t side = small ? 64 : 224;
  model.image_size = options.image_size.empty() ? std::vector{side, side} : options.image_size;
  if (model.image_size.size() == 1) model.image_size.push_back(model.image_size[0]);
  const bool small_patches = small && model.model.starts_with("deit");  // others have a stem of their own
  model.patch = options.patch.value_or(small_patches ? 4 : 16);
  model.drop_path = options.drop_path.value_or(small ? 0.0 : 0.1);
  model.lepe = !options.no_lepe;
  return recipe;
}

}  // namespace mhla::cli
