// Views of a layer, and their drawing.
#include "tasks/classify/overlay.hpp"

#include <algorithm>
#include <cmath>

#include "data/augmentation.hpp"
#include "io/png.hpp"
#include "report/heat_map.hpp"

namespace mhla::tasks {
namespace {

constexpr std::int64_t kPanelSide = 384;  // at least
constexpr std::int64_t kGap = 12;
constexpr double kStrength = 0.6;

at::Tensor enlarged(const at::Tensor& image, std::int64_t factor) {
  return image.repeat_interleave(factor, 0).repeat_interleave(factor, 1);
}

// Weights [rows, columns] as colours [height, width, 3].
at::Tensor coloured(const at::Tensor& weights, std::int64_t height, std::int64_t width) {
  at::Tensor colours = at::empty({height, width, 3}, at::kFloat);
  const at::Tensor relative = (weights.to(at::kCPU, at::kDouble) * static_cast<double>(weights.numel())).contiguous();
  const double low = std::log(report::kDarkest), high = std::log(report::kBrightest);
  const auto from = relative.accessor<double, 2>();
  auto to = colours.accessor<float, 3>();
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x) {
      const double weight = from[y * weights.size(0) / height][x * weights.size(1) / width];
      const double t = weight > 0.0 ? (std::log(weight) - low) / (high - low) : 0.0;
      const auto rgb = report::colour(std::clamp(t, 0.0, 1.0));
      for (std::int64_t c = 0; c < 3; ++c) to[y][x][c] = rgb[static_cast<std::size_t>(c)];
    }
  return colours;
}

at::Tensor laid_over(const at::Tensor& image, const at::Tensor& weights) {
  const at::Tensor colours = coloured(weights, image.size(0), image.size(1));
  return (image.to(at::kFloat) * (1.0 - kStrength) + colours * kStrength).round().to(at::kByte);
}

// A white frame around cell (row, column) of a rows x columns grid.
void mark(at::Tensor& panel, std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) {
  const std::int64_t height = panel.size(0), width = panel.size(1), line = 2;
  const at::Tensor cell = panel.slice(0, row * height / rows, (row + 1) * height / rows)
                              .slice(1, column * width / columns, (column + 1) * width / columns);
  for (const std::int64_t axis : {0, 1}) {
    cell.slice(axis, 0, line).fill_(255);
    cell.slice(axis, std::max<std::int64_t>(0, cell.size(axis) - line)).fill_(255);
  }
}

// The pixels a normalised input stands for, uint8 [H, W, 3].
at::Tensor pixels_of(const at::Tensor& input, const models::Preprocessing& preprocessing) {
  const auto channel = [](const std::array<float, 3>& values) {
    return at::tensor({values[0], values[1], values[2]}).view({3, 1, 1});
  };
  const at::Tensor values = input[0].cpu() * channel(preprocessing.std) + channel(preprocessing.mean);
  return (values * 255.0).round().clamp(0.0, 255.0).to(at::kByte).permute({1, 2, 0}).contiguous();
}

// With the border the model adds, so that tokens lie over their pixels.
at::Tensor with_border(const at::Tensor& pixels, const models::Classifier& model, std::int64_t layer) {
  const auto [height, width, top, left] = model.canvas(layer);
  return at::constant_pad_nd(pixels, {0, 0, left, width - left - pixels.size(1), top, height - top - pixels.size(0)});
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

}  // namespace

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

Overlay make_overlay(models::LoadedClassifier& classifier, const at::Tensor& input, std::int64_t layer,
                     const std::optional<std::array<std::int64_t, 2>>& token) {
  models::Classifier& model = *classifier.model;
  const nn::Grid grid = model.grid(layer);
  Overlay overlay;
  overlay.token = token;
  overlay.image = with_border(pixels_of(input, classifier.facts.preprocessing), model, layer);
  at::Tensor matrix = model.attention_matrix(input, layer)[0].mean(0).cpu();  // mean over heads
  const std::int64_t class_tokens = matrix.size(0) - grid.tokens();
  matrix = matrix.slice(0, class_tokens).slice(1, class_tokens);
  overlay.attention = view_of(matrix, overlay, grid).view({grid.height, grid.width});
  if (const at::Tensor mixing = model.mixing_parameter(layer); mixing.defined())
    overlay.mixing = mixing_view(mixing, model.partition(layer), overlay, grid).view({grid.height, grid.width});
  return overlay;
}

std::vector<std::byte> overlay_png(const Overlay& overlay) {
  const std::int64_t shorter = std::min(overlay.image.size(0), overlay.image.size(1));
  const at::Tensor image = enlarged(overlay.image, std::max<std::int64_t>(1, (kPanelSide + shorter - 1) / shorter));
  std::vector<at::Tensor> panels = {image.clone(), laid_over(image, overlay.attention)};
  if (overlay.mixing.defined()) panels.push_back(laid_over(image, overlay.mixing));
  const at::Tensor gap = at::full({image.size(0), kGap, 3}, 255, at::kByte);
  std::vector<at::Tensor> row;
  for (at::Tensor& panel : panels) {
    if (overlay.token)
      mark(panel, (*overlay.token)[0], (*overlay.token)[1], overlay.attention.size(0), overlay.attention.size(1));
    if (!row.empty()) row.push_back(gap);
    row.push_back(panel);
  }
  const at::Tensor whole = at::cat(row, 1).contiguous();
  return io::encode_png({whole.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(whole.numel())}, whole.size(1),
                        whole.size(0));
}

}  // namespace mhla::tasks
