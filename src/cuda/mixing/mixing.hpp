// S~_i = sum_e m[i, e] S_e, and its adjoint dS_e = sum_i m[i, e] dS~_i; likewise for z.
#pragma once

#include <cuda_runtime.h>

#include "cuda/support/shape.cuh"

namespace mhla::cuda {

// The weights of a call as elements: [matrices, weight_rows, weight_columns], row = block, column = entry, zero where
// a block does not see an entry and in the padding.
inline int weight_rows(const Shape& shape) { return (shape.uniform.blocks + 15) / 16 * 16; }
inline int weight_columns(const Shape& shape) { return (shape.initial + shape.uniform.blocks + 15) / 16 * 16; }
inline std::int64_t weight_count(const Shape& shape) {
  return static_cast<std::int64_t>(shape.matrices) * weight_rows(shape) * weight_columns(shape);
}
template <typename E>
void write_weights(const Shape& shape, E* weights, cudaStream_t stream);

template <typename E>
struct MixingArgs {
  using T = Accumulator<E>;
  Shape shape;
  const E* weights = nullptr;
  const E* from = nullptr;  // forward: S store; adjoint: S~ store
  E* to = nullptr;          // the other one
  const T* sums_from = nullptr;
  T* sums_to = nullptr;  // null: no z
  // Adjoint only. Entries of the initial state go to d_initial (null: dropped), those of this call gain d_final.
  const T* d_final_S = nullptr;
  const T* d_final_z = nullptr;
  T* d_initial_S = nullptr;
  T* d_initial_z = nullptr;
};

template <typename Math>
void mix(const MixingArgs<typename Math::Element>& args, cudaStream_t stream);
// z alone, as mix() and mix_adjoint() do beside S.
template <typename E, bool kAdjoint>
void mix_sums(const MixingArgs<E>& args, cudaStream_t stream);
template <typename Math>
void mix_adjoint(const MixingArgs<typename Math::Element>& args, cudaStream_t stream);

// d m[i, e] = <dS~_i, S_e> + <dz~_i, z_e>, plus the terms collected per block and per pair elsewhere.
template <typename E>
struct MixingGradientArgs {
  using T = Accumulator<E>;
  Shape shape;
  const E* S = nullptr;        // S store
  const E* d_mixed = nullptr;  // dS~ store
  double factor = 1;           // of their product
  const T* z = nullptr;        // null: no normaliser, or one whose terms are in `pairs`
  const T* d_mixed_z = nullptr;
  const T* diagonal = nullptr;  // [mixed rows, diagonal_parts]: terms of d m[i, i] inside blocks
  int diagonal_parts = 0;
  const T* pairs = nullptr;  // [sequences, heads, M, M]: terms of the denominator
  T* partial = nullptr;      // workspace of mixing_gradient_workspace() elements
  T* d_mixing = nullptr;
};

std::size_t mixing_gradient_workspace(const Shape& shape, int most_blocks);  // elements
template <typename Math>
void mixing_gradient(const MixingGradientArgs<typename Math::Element>& args, int most_blocks, cudaStream_t stream);

// d m[i, j] from its terms [sequences, heads, blocks, parts, blocks].
template <typename T>
void sum_pairs(const Shape& shape, const T* pair_sums, int parts, T* d_mixing, cudaStream_t stream);

}  // namespace mhla::cuda
