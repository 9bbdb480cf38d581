// Flags of `mhla train language`.
#include "cli/train/language_options.hpp"

#include <string>
#include <vector>

#include "cli/support/checks.hpp"
#include "cli/support/option_group.hpp"
#include "cli/train/training_options.hpp"
#include "models/lm/lm_design.hpp"

namespace mhla::cli {
namespace {

using tasks::TrainLanguageOptions;

// Members of the model's options, of which only those that are given are kept.
class MemberGroup {
 public:
  MemberGroup(CLI::App& command, io::Json& members) : command_(command), members_(members) {}

  template <typename Value>
  CLI::Option* add(const char* name, const char* member, const char* type, const char* about,
                   const char* initial = "by --model") {
    return command_
        .add_option_function<Value>(
            name, [this_members = &members_, member](const Value& value) { (*this_members)[member] = value; }, about)
        ->type_name(type)
        ->default_str(initial)
        ->group(kModelHeading);
  }

  void flag(const char* name, const char* member, bool value, const char* about) {
    command_
        .add_flag_callback(
            name, [this_members = &members_, member, value] { (*this_members)[member] = value; }, about)
        ->group(kModelHeading);
  }

 private:
  CLI::App& command_;
  io::Json& members_;
};

void add_size_options(MemberGroup& group) {
  using Count = std::int64_t;
  group.add<Count>("--width", "width", "N", "Channels")->check(within(0, 1 << 16));
  group.add<Count>("--depth", "depth", "N", "Layers")->check(within(0, 1024));
  group.add<Count>("--heads", "heads", "N", "Heads")->check(within(0, 1 << 12));
  group.add<Count>("--kv-heads", "kv_heads", "N", "Heads of keys and values", "as --heads")->check(within(0, 1 << 12));
  group.add<Count>("--mlp-width", "mlp_width", "N", "Channels inside an MLP", "8/3 of --width")
      ->check(within(0, 1 << 20));
  group.add<Count>("--block-size", "block_size", "N", "MHLA: tokens of a block", "64")->check(within(1, 1 << 16));
  group.add<Count>("--blocks", "blocks", "N", "MHLA: blocks that have weights", "as many as --context has")
      ->check(within(1, 1 << 14));
}

void add_detail_options(MemberGroup& group) {
  group.add<std::string>("--beyond", "beyond", "NAME", "MHLA: what happens after these blocks", "error")
      ->check(CLI::IsMember({"error", "clamp", "running-mean", "interpolate"}));
  group.add<std::string>("--feature-map", "feature_map", "NAME", "Features of linear and mhla", "relu")
      ->check(CLI::IsMember({"relu", "identity", "elu", "hedgehog", "t2r", "elementwise_product", "dpfp"}));
  group.flag("--short-convolution", "short_convolution", true, "Convolve queries, keys and values over four tokens");
  group.flag("--no-gate", "output_gate", false, "Leave out the gate of the attention's output");
  group.flag("--untied", "tied", false, "Give the last layer a weight of its own instead of the embedding");
  group.add<std::string>("--mixing-init", "mixing_init", "NAME", "How the mixing matrices start", "running-mean")
      ->check(
          shown_choices({"paper", "linear", "cos", "exp", "gaussian", "local", "uniform", "running-mean", "constant"}));
  group.flag("--mixing-frozen", "mixing_frozen", true, "Do not train the mixing matrices");
  group.flag("--recompute", "recompute", true,
             "Compute activations again in the backward pass: less memory, more time");
}

void add_model_options(CLI::App& command, TrainLanguageOptions& options) {
  MemberGroup group(command, options.model);
  group.add<std::string>("--model", "model", "NAME", "Architecture", "by --recipe")
      ->check(CLI::IsMember(models::lm_names()));
  group
      .add<std::vector<std::string>>("--attention", "attention", "NAME",
                                     "Attention: one for all layers, or one per layer", "mhla")
      ->delimiter(',')
      ->check(CLI::IsMember({"softmax", "linear", "gla", "mhla"}));
  add_size_options(group);
  add_detail_options(group);
  OptionGroup(command, kModelHeading)
      .add("--init", options.init, "PATH",
           "Begin with this model, a .safetensors file or a folder: its sizes, and its weights as far as they fit")
      ->check(existing_path());
}

void add_recipe_options(CLI::App& command, TrainLanguageOptions& options) {
  OptionGroup group(command, kRecipeHeading);
  group
      .add("--recipe", options.recipe, "NAME",
           "Where defaults come from: small (lm_small, 3,000 steps) or 340m (lm_340m, 38,147 steps)")
      ->check(CLI::IsMember({"small", "340m"}));
  group.add_open("--steps", options.steps, "N", "Optimiser steps")->check(within<std::int64_t>(1, 1'000'000'000));
  group.add_open("--context", options.context, "N", "Tokens of a window, which the model sees at once")
      ->check(within<std::int64_t>(1, 1 << 24));
  group.add_open("--batch-tokens", options.batch_tokens, "N", "Tokens of a step, over all processes")
      ->check(within<std::int64_t>(1, std::int64_t{1} << 32));
  group
      .add_open("--micro-batch", options.micro_batch, "N",
                "Windows a process computes at once: less is less memory, and the same result",
                "by --recipe; 8,192 tokens on a CPU")
      ->check(within<std::int64_t>(1, 1 << 20));
  group.flag("--separate-documents", options.separate_documents, "Documents of a window do not see each other");
  add_optimisation_options(command, options, "a tenth of --lr");
}

void add_validation_options(CLI::App& command, TrainLanguageOptions& options) {
  OptionGroup group(command, "Validation");
  group
      .add("--val-tokens", options.val_tokens, "N",
           "Held-out tokens that the loss is measured on, at most; one window at least")
      ->check(within<std::int64_t>(1, std::int64_t{1} << 40));
  group.add("--sample-tokens", options.sample_tokens, "N", "Tokens of the text written at every validation")
      ->check(within<std::int64_t>(0, 1 << 20));
  group.add("--prompt", options.prompt, "TEXT", "How this text begins");
}

}  // namespace

void add_train_language_options(CLI::App& command, TrainLanguageOptions& options) {
  command.add_option("--data", options.data, "Folder of `mhla tokenize` with the splits train and, if held out, val")
      ->required()
      ->check(existing_path())
      ->type_name("FOLDER");
  command.add_option("--tokenizer", options.tokenizer, "The tokenizer the tokens were made with: a file or a folder")
      ->check(existing_path())
      ->type_name("PATH")
      ->default_str("beside the splits");
  add_model_options(command, options);
  add_recipe_options(command, options);
  add_validation_options(command, options);
  add_run_options(command, options);
}

}  // namespace mhla::cli
