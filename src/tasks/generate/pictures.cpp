// Bytes and grids.
#include "tasks/generate/pictures.hpp"

#include <algorithm>

namespace mhla::tasks {

at::Tensor pixels_of(const at::Tensor& x) {
  const at::Tensor values = (x.to(at::kCPU, at::kFloat) * 127.5 + 128.0).clamp(0.0, 255.0);
  return values.to(at::kByte).permute({0, 2, 3, 1}).contiguous();
}

io::Image grid_of(const at::Tensor& pixels, std::int64_t columns) {
  constexpr std::int64_t kLine = 2;
  const std::int64_t count = pixels.size(0), height = pixels.size(1), width = pixels.size(2);
  columns = std::clamp<std::int64_t>(columns, 1, std::max<std::int64_t>(count, 1));
  const std::int64_t rows = (count + columns - 1) / columns;
  io::Image grid = io::make_image(rows * (height + kLine) - kLine, columns * (width + kLine) - kLine);
  const at::Tensor canvas = at::from_blob(grid.rgb.data(), {grid.height, grid.width, 3}, at::kByte);
  canvas.fill_(255);
  for (std::int64_t i = 0; i < count; ++i)
    canvas.narrow(0, i / columns * (height + kLine), height)
        .narrow(1, i % columns * (width + kLine), width)
        .copy_(pixels[i]);
  return grid;
}

}  // namespace mhla::tasks
