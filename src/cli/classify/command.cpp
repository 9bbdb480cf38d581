// `mhla classify IMAGE...`: what is in a picture, and where the model looked.
#include <fmt/format.h>

#include <bit>
#include <iostream>
#include <memory>

#include "cli/classify/model.hpp"
#include "cli/classify/overlay.hpp"
#include "cli/commands.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/device.hpp"
#include "cli/support/output.hpp"
#include "data/augmentation.hpp"
#include "io/file.hpp"
#include "io/image.hpp"
#include "models/classifier_file.hpp"
#include "models/vit/vit.hpp"

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

// [1, 3, H, W] as the model is evaluated.
at::Tensor input_of(const io::Image& image, const models::LoadedClassifier& classifier) {
  const auto& size = classifier.model->options.image_size;
  const models::Preprocessing& preprocessing = classifier.facts.preprocessing;
  at::Tensor planes = at::empty({1, 3, size[0], size[1]});
  data::write_for_evaluation(
      image, preprocessing.crop_fraction, {preprocessing.mean, preprocessing.std},
      {size[0], size[1], {planes.mutable_data_ptr<float>(), static_cast<std::size_t>(planes.numel())}});
  return planes;
}

// The pixels a normalised input stands for, uint8 [H, W, 3].
at::Tensor pixels_of(const at::Tensor& input, const models::Preprocessing& preprocessing) {
  const auto channel = [](const std::array<float, 3>& values) {
    return at::tensor({values[0], values[1], values[2]}).view({3, 1, 1});
  };
  const at::Tensor values = input[0].cpu() * channel(preprocessing.std) + channel(preprocessing.mean);
  return (values * 255.0).round().clamp(0.0, 255.0).to(at::kByte).permute({1, 2, 0}).contiguous();
}

// Pixels of a token's side. What is no plain vision transformer halves the image until its tokens are left, rounding
// up.
std::int64_t token_side(const models::ClassifierOptions& options, std::int64_t pixels, std::int64_t tokens) {
  if (options.model.starts_with("deit")) return options.patch;
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>((pixels + tokens - 1) / tokens)));
}

// With the border the model adds, so that tokens lie over their pixels.
at::Tensor with_border(const at::Tensor& pixels, const models::Classifier& model, nn::Grid grid) {
  const std::int64_t height = pixels.size(0), width = pixels.size(1);
  const std::int64_t more_height = grid.height * token_side(model.options, height, grid.height) - height;
  const std::int64_t more_width = grid.width * token_side(model.options, width, grid.width) - width;
  const auto* const vit = dynamic_cast<const models::Vit*>(&model);
  const bool centred = vit != nullptr && vit->design.canvas;
  const std::int64_t top = centred ? more_height / 2 : 0, left = centred ? more_width / 2 : 0;
  return at::constant_pad_nd(pixels, {0, 0, left, more_width - left, top, more_height - top});
}

std::int64_t layer_of_overlay(const ClassifyOptions& options, const models::Classifier& model) {
  const std::int64_t last = model.layers() - 1;
  if (options.layer > last)
    throw UsageError(fmt::format("--layer is {}; the model has layers 0 to {}", options.layer, last));
  return options.layer < 0 ? last : options.layer;
}

// Of the matrix whose rows are tokens: the row of the token that looks, or the mean of all.
at::Tensor view_of(const at::Tensor& rows, const Overlay& overlay, nn::Grid grid) {
  return overlay.token ? rows[(*overlay.token)[0] * grid.width + (*overlay.token)[1]] : rows.mean(0);
}

// For every token the share of its block, so scaled that all of a uniform matrix are 1 / N.
at::Tensor mixing_view(const at::Tensor& mixing, const Partition& partition, const Overlay& overlay, nn::Grid grid) {
  const at::Tensor weights = mixing.detach().flatten(1).to(at::kCPU, at::kDouble);
  const at::Tensor shares = weights / weights.sum(1, true).clamp_min(1e-12);
  const at::Tensor blocks = nn::block_of_tokens(partition);
  const at::Tensor view = view_of(shares.index_select(0, blocks), overlay, grid).index_select(0, blocks);
  return view * (static_cast<double>(partition.blocks()) / static_cast<double>(partition.tokens()));
}

Overlay make_overlay(const ClassifyOptions& options, models::LoadedClassifier& classifier, const at::Tensor& input) {
  models::Classifier& model = *classifier.model;
  const std::int64_t layer = layer_of_overlay(options, model);
  const nn::Grid grid = model.grid(layer);
  Overlay overlay;
  if (!options.token.empty()) {
    if (options.token[0] >= grid.height || options.token[1] >= grid.width)
      throw UsageError(fmt::format("--token is {} {}; layer {} has {} rows and {} columns of tokens", options.token[0],
                                   options.token[1], layer, grid.height, grid.width));
    overlay.token = {options.token[0], options.token[1]};
  }
  overlay.image = with_border(pixels_of(input, classifier.facts.preprocessing), model, grid);
  at::Tensor matrix = model.attention_matrix(input, layer)[0].mean(0).cpu();  // mean over heads
  const std::int64_t class_tokens = matrix.size(0) - grid.tokens();
  matrix = matrix.slice(0, class_tokens).slice(1, class_tokens);
  overlay.attention = view_of(matrix, overlay, grid).view({grid.height, grid.width});
  if (const at::Tensor mixing = model.mixing_parameter(layer); mixing.defined())
    overlay.mixing = mixing_view(mixing, model.partition(layer), overlay, grid).view({grid.height, grid.width});
  return overlay;
}

// Writes the picture; returns what it shows.
std::string draw_overlay(const ClassifyOptions& options, models::LoadedClassifier& classifier,
                         const at::Tensor& input) {
  const Overlay overlay = make_overlay(options, classifier, input);
  io::write_file(options.overlay, overlay_png(overlay));
  const std::int64_t layer = layer_of_overlay(options, *classifier.model);
  return overlay.mixing.defined()
             ? fmt::format("The image, attention of layer {} over it and its mixing of blocks over it", layer)
             : fmt::format("The image and attention of layer {} over it", layer);
}

// The file's lines of the table and its JSON; returns what was drawn, if anything.
std::string classify_image(const std::string& file, const ClassifyOptions& options,
                           models::LoadedClassifier& classifier, std::vector<std::vector<std::string>>& rows,
                           io::Json& json) {
  const torch::NoGradGuard no_gradient;
  const at::Tensor input = input_of(io::load_image(file), classifier).to(at::Device(options.device));
  const at::Tensor probabilities = at::softmax(classifier.model->forward(input)[0], 0, at::kDouble).cpu();
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
  const std::filesystem::path path = classifier_path(options.model);
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
      std::cerr << "mhla: " << error.what() << '\n';
      json.push_back({{"image", file}, {"error", error.what()}});
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
      ->check(kPositive)
      ->type_name("K")
      ->capture_default_str();
  add_cpu_or_cuda_option(*command, options->device);
  command
      ->add_option("--overlay", options->overlay,
                   "Also draw a PNG of one image: the image, and over it what tokens look at and how blocks are mixed")
      ->type_name("FILE");
  command->add_option("--layer", options->layer, "Layer of --overlay, counted from 0")
      ->check(kNonNegative)
      ->type_name("N")
      ->default_str("the last");
  command->add_option("--token", options->token, "Token whose view --overlay draws, counted from 0")
      ->expected(2)
      ->check(kNonNegative)
      ->type_name("ROW COLUMN")
      ->default_str("the mean of all");
  options->output.add_option(*command);
  command->callback([options, &outcome] { outcome.exit_code = run_classify(*options); });
}

}  // namespace mhla::cli
