// Drawing of overlays.
#include "cli/classify/overlay.hpp"

#include <algorithm>
#include <cmath>

#include "io/png.hpp"
#include "report/heat_map.hpp"

namespace mhla::cli {
namespace {

constexpr std::int64_t kPanelSide = 384;  // at least
constexpr std::int64_t kGap = 12;
constexpr double kOverlayStrength = 0.6;

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
  return (image.to(at::kFloat) * (1.0 - kOverlayStrength) + colours * kOverlayStrength).round().to(at::kByte);
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

}  // namespace

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

}  // namespace mhla::cli
