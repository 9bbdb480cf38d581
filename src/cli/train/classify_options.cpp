// Flags of `mhla train classify`.
#include "cli/train/classify_options.hpp"

#include "cli/support/checks.hpp"
#include "cli/support/option_group.hpp"
#include "cli/train/training_options.hpp"
#include "data/rand_augment.hpp"
#include "models/classifiers.hpp"

namespace mhla::cli {
namespace {

using tasks::TrainClassifyOptions;

CLI::Validator rand_augment_check() {
  const auto check = [](const std::string& text) -> std::string {
    try {
      if (text != "none") data::parse_rand_augment(text);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  return CLI::Validator(check, "");
}

void add_model_options(CLI::App& command, TrainClassifyOptions& options) {
  OptionGroup group(command, kModelHeading);
  models::ClassifierOptions& model = options.model;
  group.add("--model", model.model, "NAME", "Architecture")->check(CLI::IsMember(models::classifier_names()));
  group.add("--preset", model.preset, "NAME", "Details as in the paper, or as in the authors' code")
      ->check(CLI::IsMember({"paper", "authors"}));
  group.add("--attention", model.attention, "NAME", "Attention: one for all layers, or one per layer")
      ->delimiter(',')
      ->check(CLI::IsMember({"softmax", "linear", "mhla"}));
  group.add_open("--image-size", options.image_size, "PX [PX]", "Height and width, or one number for both, in pixels")
      ->expected(1, 2)
      ->check(within(1, 16384));
  group.add_open("--patch", options.patch, "PX", "Side of a patch in pixels")->check(within(1, 1024));
  group.add("--blocks", model.blocks, "N N", "Blocks of tokens per axis; M is their product")
      ->expected(2)
      ->check(within(1, 1024));
  group.add("--width", model.width, "N", "Channels; 0 is the model's own number")->check(within(0, 1 << 16));
  group.add("--depth", model.depth, "N", "Layers; 0 is the model's own number")->check(within(0, 1024));
  group.add("--heads", model.heads, "N", "Heads; 0 is the model's own number")->check(within(0, 1 << 12));
  group.flag("--no-lepe", options.no_lepe, "Leave out the 5x5 convolution on the values");
  group.add("--mixing-init", model.mixing_init, "NAME", "How the mixing matrices start")
      ->check(
          shown_choices({"paper", "linear", "cos", "exp", "gaussian", "local", "uniform", "running_mean", "constant"}));
  group.add("--mixing", model.mixing, "NAME", "Mixing by the learned matrix alone, or moved by what blocks hold")
      ->check(CLI::IsMember({"static", "input"}));
  group.flag("--mixing-frozen", model.mixing_frozen, "Do not train the mixing matrices");
  group.add_open("--drop-path", options.drop_path, "RATE", "Drop-path rate of the last layer")
      ->check(within(0.0, 0.99));
  group.flag("--recompute", model.recompute, "Compute activations again in the backward pass: less memory, more time");
  add_init_option(command, options);
}

void add_recipe_options(CLI::App& command, TrainClassifyOptions& options) {
  OptionGroup group(command, kRecipeHeading);
  group
      .add("--recipe", options.recipe, "NAME",
           "Where defaults come from: small (64 px, 30 epochs) or deit (224 px, 300)")
      ->check(CLI::IsMember({"small", "deit"}));
  group.add_open("--epochs", options.epochs, "N", "Passes over the training images; may be a fraction")
      ->check(within(1e-6, 1e6));
  add_batch_options(command, options);
  add_optimisation_options(command, options);
}

void add_data_options(CLI::App& command, TrainClassifyOptions& options) {
  OptionGroup group(command, kImagesHeading);
  group.add_open("--augment", options.augment, "NAME", "Augmentation; light is shifts, flips and turns")
      ->check(CLI::IsMember({"none", "light", "deit"}));
  constexpr const char* kByAugment = "by --augment";
  group
      .add_open("--rand-augment", options.rand_augment, "TEXT",
                "RandAugment, such as rand-m9-mstd0.5-inc1; none is off", kByAugment)
      ->check(rand_augment_check());
  const auto number = [&](const char* name, std::optional<double>& value, const char* type, const char* about) {
    group.add_open(name, value, type, about, kByAugment)->check(at_least(0.0));
  };
  number("--mixup", options.mixup, "ALPHA", "Alpha of mixup; 0 is off");
  number("--cutmix", options.cutmix, "ALPHA", "Alpha of CutMix; 0 is off");
  number("--smoothing", options.smoothing, "SHARE", "Label smoothing");
  number("--erasing", options.erasing, "SHARE", "Probability of random erasing");
  number("--color-jitter", options.color_jitter, "STRENGTH", "Colour jitter; has no effect beside RandAugment");
  group.add_open("--mean", options.mean, "R G B", "Mean of red, green and blue", "measured on training images")
      ->expected(3)
      ->check(within(0.0, 1.0));
  group
      .add_open("--std", options.deviation, "R G B", "Standard deviations, given together with --mean",
                "measured on training images")
      ->expected(3)
      ->check(within(1e-6, 1.0));
  add_loading_options(command, options);
}

}  // namespace

void add_train_classify_options(CLI::App& command, TrainClassifyOptions& options) {
  command
      .add_option("--data", options.data,
                  "Images as train/CLASS/*.jpg|png, and val and test likewise: a folder or a .tar[.gz]")
      ->required()
      ->check(existing_path())
      ->type_name("PATH");
  add_model_options(command, options);
  add_recipe_options(command, options);
  add_data_options(command, options);
  add_run_options(command, options);
}

}  // namespace mhla::cli
