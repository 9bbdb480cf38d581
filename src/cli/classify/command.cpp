// `mhla classify IMAGE...`: what is in a picture, and where the model looked.
#include <fmt/format.h>

#include <array>
#include <iostream>
#include <memory>
#include <optional>

#include "cli/commands.hpp"
#include "cli/failure.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/device.hpp"
#include "cli/support/output.hpp"
#include "io/file.hpp"
#include "io/image.hpp"
#include "models/classifier_file.hpp"
#include "tasks/classify/overlay.hpp"
#include "tasks/classify/pretrained.hpp"

namespace mhla::cli {
namespace {

struct ClassifyOptions {
  std::vector<std::string> images;
  std::string model, device = "cpu", overlay;
  std::int64_t top = 3;
  std::int64_t layer = -1;
  std::vector<std::int64_t> token;
  Output output;
};

std::int64_t layer_of_overlay(const ClassifyOptions& options, const models::Classifier& model) {
  const std::int64_t last = model.layers() - 1;
  if (options.layer > last)
    throw UsageError(fmt::format("--layer is {}; the model has layers 0 to {}", options.layer, last));
  return options.layer < 0 ? last : options.layer;
}

std::optional<std::array<std::int64_t, 2>> token_of_overlay(const ClassifyOptions& options,
                                                            const models::Classifier& model, std::int64_t layer) {
  if (options.token.empty()) return std::nullopt;
  const nn::Grid grid = model.grid(layer);
  if (options.token[0] >= grid.height || options.token[1] >= grid.width)
    throw UsageError(fmt::format("--token is {} {}; layer {} has {} rows and {} columns of tokens", options.token[0],
                                 options.token[1], layer, grid.height, grid.width));
  return {{options.token[0], options.token[1]}};
}

// Writes the picture; returns what it shows.
std::string draw_overlay(const ClassifyOptions& options, models::LoadedClassifier& classifier,
                         const at::Tensor& input) {
  const std::int64_t layer = layer_of_overlay(options, *classifier.model);
  const tasks::Overlay overlay =
      tasks::make_overlay(classifier, input, layer, token_of_overlay(options, *classifier.model, layer));
  io::write_file(options.overlay, overlay_png(overlay));
  return overlay.mixing.defined()
             ? fmt::format("The image, attention of layer {} over it and its mixing of blocks over it", layer)
             : fmt::format("The image and attention of layer {} over it", layer);
}

// The file's lines of the table and its JSON; returns what was drawn, if anything.
std::string classify_image(const std::string& file, const ClassifyOptions& options,
                           models::LoadedClassifier& classifier, std::vector<std::vector<std::string>>& rows,
                           io::Json& json) {
  const torch::NoGradGuard no_gradient;
  const at::Tensor input = tasks::input_of(io::load_image(file), classifier).to(at::Device(options.device));
  const at::Tensor scores = classifier.model->forward(input)[0];
  if (!scores.isfinite().all().item<bool>())
    throw Error(fmt::format("{}: the model's scores are not finite; its weights are too large or damaged", file));
  const at::Tensor probabilities = at::softmax(scores, 0, at::kDouble).cpu();
  const auto [values, labels] = probabilities.topk(std::min(options.top, probabilities.size(0)));
  io::Json top = io::Json::array();
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    const auto label = labels[i].item<std::int64_t>();
    const auto& names = classifier.facts.classes;
    const std::string name = names.empty() ? std::to_string(label) : names[static_cast<std::size_t>(label)];
    const auto probability = values[i].item<double>();
    rows.push_back({i == 0 ? file : "", name, fmt::format("{:.1f} %", 100.0 * probability)});
    top.push_back({{"class", name}, {"label", label}, {"probability", probability}});
  }
  json.push_back({{"image", file}, {"top", top}});
  return options.overlay.empty() ? "" : draw_overlay(options, classifier, input);
}

int run_classify(const ClassifyOptions& options) {
  if (!options.overlay.empty() && options.images.size() != 1)
    throw UsageError(fmt::format("--overlay is for one image, but {} are given", options.images.size()));
  if (options.device != "cpu" && !torch::cuda::is_available())
    throw UsageError(
        "--device is cuda, but there is no GPU, no driver, or this program's torch was built without CUDA");
  const std::filesystem::path path = tasks::classifier_path(options.model);
  models::LoadedClassifier classifier = models::load_classifier(path, at::Device(options.device));
  std::vector<std::vector<std::string>> rows;
  io::Json json = io::Json::array();
  bool all_good = true;
  std::string drawn;
  for (const std::string& file : options.images) try {
      drawn = classify_image(file, options, classifier, rows, json);
    } catch (const UsageError&) {
      throw;
    } catch (const std::exception& error) {
      all_good = false;
      const std::string why = failure_message(error);
      std::cerr << "mhla: " << why << '\n';
      json.push_back({{"image", file}, {"error", why}});
    }
  if (!rows.empty()) options.output.text() << table({"image", "class", "probability"}, rows);
  if (!drawn.empty()) options.output.text() << fmt::format("\n{}: {}\n", drawn, options.overlay);
  options.output.json({{"model", path.string()}, {"images", json}});
  return all_good ? 0 : 1;
}

}  // namespace

void add_classify(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<ClassifyOptions>();
  auto* command = program.add_subcommand("classify", "Say what is in an image, with probabilities");
  command->add_option("images", options->images, "JPEG or PNG files of any size")->required()->type_name("IMAGE");
  command->add_option("--model", options->model, "Classifier (.safetensors) of `mhla train classify`")
      ->type_name("FILE")
      ->default_str("the one file in the folder pretrained");
  command->add_option("--top", options->top, "How many classes to name")
      ->check(at_least<std::int64_t>(1))
      ->type_name("K")
      ->capture_default_str();
  add_cpu_or_cuda_option(*command, options->device);
  command
      ->add_option("--overlay", options->overlay,
                   "Also draw a PNG of one image: the image, and over it what tokens look at and how blocks are mixed")
      ->type_name("FILE");
  command->add_option("--layer", options->layer, "Layer of --overlay, counted from 0")
      ->check(at_least<std::int64_t>(0))
      ->type_name("N")
      ->default_str("the last");
  command->add_option("--token", options->token, "Token whose view --overlay draws, counted from 0")
      ->expected(2)
      ->check(at_least<std::int64_t>(0))
      ->type_name("ROW COLUMN")
      ->default_str("the mean of all");
  options->output.add_option(*command);
  command->callback([options, &outcome] { outcome.exit_code = run_classify(*options); });
}

}  // namespace mhla::cli
