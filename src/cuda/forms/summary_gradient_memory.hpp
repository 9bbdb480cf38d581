// What the backward pass of the summary form takes from the workspace beside the summaries.
#pragma once

#include "cuda/forms/summary_call.hpp"
#include "cuda/support/tiles.cuh"

namespace mhla::cuda::summary_form {

template <typename Math>
struct GradientMemory {
  using E = typename Math::Element;
  using T = typename Math::Accumulator;

  E* scratch = nullptr;  // of heads on the chip
  T* pairs = nullptr;    // [sequences, heads, M, M]: terms of d_mixing, of heads on the chip or the authors' normaliser
  E* d_mixed = nullptr;  // dS~
  E* dS = nullptr;
  T* mixing_partial = nullptr;  // of mixing_gradient()
  T* diagonal = nullptr;        // [S~ rows, diagonal_parts]: terms of d m[i, i] inside token-causal blocks
  int diagonal_parts = 0;
  T* d_mixed_z = nullptr;  // dz~
  T* dz = nullptr;
  TokenScalars<T> denominator{}, g{};  // den, d den
  TokenTensor<E> dU{};                 // d_o / den
  TokenScalars<T> dy{};                // authors: d y, and g by slot
  T* g_slots = nullptr;

  explicit GradientMemory(SummaryCall<Math>& c) {
    const Shape& shape = c.shape;
    Workspace& memory = c.workspace;
    const std::int64_t mixed_rows = c.sizes.mixed_rows(), entry_rows = c.sizes.entry_rows();
    const auto take_pairs = [&] {
      return memory.take<T>(static_cast<std::int64_t>(shape.sequences) * shape.heads * shape.mixing_blocks *
                            shape.mixing_blocks);
    };
    if (c.stays_on_chip()) {
      pairs = take_pairs();
      scratch = memory.take<E>(resident_scratch(shape));
    }
    d_mixed = memory.take<E>(mixed_rows * shape.matrix_size());
    dS = memory.take<E>(entry_rows * shape.matrix_size());
    mixing_partial = memory.take<T>(static_cast<std::int64_t>(mixing_gradient_workspace(shape, shape.uniform.blocks)));
    if (c.token_causal()) {
      diagonal_parts = column_tiles<Math>(shape.key_dim, shape.value_pad) + (c.separate() ? 1 : 0);
      diagonal = memory.take<T>(mixed_rows * diagonal_parts);
    }
    if (!c.normalized()) return;
    d_mixed_z = memory.take<T>(mixed_rows * shape.key_pad);
    dz = memory.take<T>(entry_rows * shape.key_pad);
    denominator = take_scalars<T>(memory, c.sizes);
    g = take_scalars<T>(memory, c.sizes);
    dU = take_values<E>(memory, c.sizes);
    if (!c.authors()) return;
    dy = take_scalars<T>(memory, c.sizes);
    g_slots = memory.take<T>(mixed_rows * shape.capacity);
    pairs = take_pairs();
  }
};

}  // namespace mhla::cuda::summary_form
