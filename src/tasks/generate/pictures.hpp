// From what a generator draws to pictures that can be written.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "io/image.hpp"

namespace mhla::tasks {

// Values from -1 to 1, [N, 3, H, W], as bytes [N, H, W, 3]: 127.5 x + 128, cut off to 0 to 255.
at::Tensor pixels_of(const at::Tensor& x);

// Pictures [N, H, W, 3] in rows of `columns`, with a white line of two pixels between them.
io::Image grid_of(const at::Tensor& pixels, std::int64_t columns);

}  // namespace mhla::tasks
