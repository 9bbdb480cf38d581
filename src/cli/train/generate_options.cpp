// Flags of `mhla train generate`.
#include "cli/train/generate_options.hpp"

#include "cli/support/checks.hpp"
#include "cli/support/option_group.hpp"
#include "cli/train/training_options.hpp"
#include "models/generators.hpp"

namespace mhla::cli {
namespace {

using tasks::TrainGenerateOptions;

void add_model_options(CLI::App& command, TrainGenerateOptions& options) {
  OptionGroup group(command, kModelHeading);
  models::GeneratorOptions& model = options.model;
  group.add_open("--model", options.model_name, "NAME", "Architecture")
      ->check(CLI::IsMember(models::generator_names()));
  group.add("--preset", model.preset, "NAME", "Details as in the paper, or as in the authors' code")
      ->check(CLI::IsMember({"paper", "authors"}));
  group
      .add_open("--attention", model.attention, "NAME",
                "Attention: one for all layers, or one per layer; dit_*: softmax, linear or mhla; dig_*: gla or mhla",
                "mhla, dig_*: gla")
      ->delimiter(',')
      ->check(CLI::IsMember({"softmax", "linear", "mhla", "gla"}));
  group.add_open("--image-size", options.image_size, "PX [PX]", "Height and width of pictures, in pixels")
      ->expected(1, 2)
      ->check(within(1, 16384));
  group.add("--blocks", model.blocks, "N N", "Blocks of tokens per axis; M is their product")
      ->expected(2)
      ->check(within(1, 1024));
  group.add("--patch", model.patch, "N", "Side of a patch; 0 is the model's own number")->check(within(0, 1024));
  group.add("--width", model.width, "N", "Channels; 0 is the model's own number")->check(within(0, 1 << 16));
  group.add("--depth", model.depth, "N", "Layers; 0 is the model's own number")->check(within(0, 1024));
  group.add("--heads", model.heads, "N", "Heads; 0 is the model's own number")->check(within(0, 1 << 12));
  group.flag("--lepe", model.lepe, "Add a 3x3 convolution of the values to the attention's output");
  group.flag("--cpe", model.cpe, "Put a 3x3 convolution of the grid after every block");
  group.flag("--gate", model.gate, "Multiply the attention's output by a gate of its input");
  group.flag("--qk-norm", model.qk_norm, "Normalise queries and keys");
  group
      .add_open("--learned-variance", options.learned_variance, "BOOL",
                "Learn the variance of a reverse step as well as the noise")
      ->check(CLI::IsMember({"true", "false"}));
  group.add("--mixing-init", model.mixing_init, "NAME", "How the mixing matrices start")
      ->check(
          shown_choices({"paper", "linear", "cos", "exp", "gaussian", "local", "uniform", "running_mean", "constant"}));
  group.add("--mixing", model.mixing, "NAME", "Mixing by the learned matrix alone, or moved by what blocks hold")
      ->check(CLI::IsMember({"static", "input"}));
  group.flag("--mixing-frozen", model.mixing_frozen, "Do not train the mixing matrices");
  group.flag("--recompute", model.recompute, "Compute activations again in the backward pass: less memory, more time");
  add_init_option(command, options);
}

void add_recipe_options(CLI::App& command, TrainGenerateOptions& options) {
  OptionGroup group(command, kRecipeHeading);
  group
      .add("--recipe", options.recipe, "NAME",
           "Where defaults come from: small (dit_t4, 64 px, 4,000 steps) or dit (dit_s2, 256 px, 400,000 steps)")
      ->check(CLI::IsMember({"small", "dit"}));
  group.add_open("--steps", options.steps, "N", "Optimiser steps")->check(within<std::int64_t>(1, 1'000'000'000));
  add_batch_options(command, options);
  add_optimisation_options(command, options);
  group
      .add("--noise", options.noise, "NAME",
           "How noise grows over the 1,000 steps of the diffusion; flow: linearly, and the network predicts velocities")
      ->check(CLI::IsMember({"linear", "cosine", "flow"}));
  group.add("--drop-class", options.drop_class, "SHARE", "How often a picture is shown without its class")
      ->check(within(0.0, 1.0));
}

void add_image_options(CLI::App& command, TrainGenerateOptions& options) {
  OptionGroup(command, kImagesHeading)
      .add("--augment", options.augment, "NAME",
           "Mirror images at random (flip), or also turn them (turns, for images without an up)")
      ->check(CLI::IsMember({"none", "flip", "turns"}));
  add_loading_options(command, options);
}

void add_sample_options(CLI::App& command, TrainGenerateOptions& options) {
  OptionGroup group(command, "Validation");
  group.add("--val-images", options.val_images, "N", "Held-out images that the error is measured on, at most")
      ->check(within(1, 1 << 30));
  group.add("--samples", options.samples, "N", "Pictures of each of the first ten classes, drawn at every validation")
      ->check(within(0, 1000));
  group.add("--sample-steps", options.sample_steps, "N", "DDIM steps of these pictures")->check(within(1, 1000));
  group.add("--cfg-scale", options.cfg_scale, "SCALE", "Classifier-free guidance of these pictures; 1 is none")
      ->check(at_least(0.0));
}

}  // namespace

void add_train_generate_options(CLI::App& command, TrainGenerateOptions& options) {
  command
      .add_option("--data", options.data,
                  "Images as train/CLASS/*.jpg|png, and val likewise: a folder or a .tar[.gz]; or a folder of latents")
      ->required()
      ->check(existing_path())
      ->type_name("PATH");
  add_model_options(command, options);
  add_recipe_options(command, options);
  add_image_options(command, options);
  add_sample_options(command, options);
  add_run_options(command, options);
}

}  // namespace mhla::cli
