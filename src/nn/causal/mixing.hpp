// Causal mixing matrices for more blocks than they were trained for.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "mhla/mixing.hpp"

namespace mhla::nn {

// As extend_causal_mixing, with gradient: the matrix [M, M] itself for at most M blocks, else [blocks, blocks]. Throws
// an Error for more than M where `beyond` is error.
at::Tensor extended_mixing(const at::Tensor& mixing, std::int64_t blocks, BeyondTrained beyond);

// The Error of a layer that has no weights for this many blocks.
[[noreturn]] void refuse_blocks(std::int64_t blocks, std::int64_t trained);

}  // namespace mhla::nn
