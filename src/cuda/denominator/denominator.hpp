// Denominators of tokens where the readout does not make them itself: separate q_den and k_den, the authors'
// normaliser, and the backward pass. One warp per token and head, full precision.
//
//   paper    den_t = scale phi(q_t) . z~_i + eps; token-causal: z~_i + m[i, i] sum_{s <= t in block} phi(k_s) for z~_i
//   authors  den[i, w] = sum_b m[i, b] y[b, w] + eps,  y[b, w] = scale phi(q[b, w]) . z_b,  w: slot in the block
#pragma once

#include <cuda_runtime.h>

#include "cuda/support/shape.cuh"

namespace mhla::cuda {

// Sums of features over the tokens of every block: z_b = factor sum_t w_t phi(x_t).
template <typename E>
struct FeatureSumArgs {
  using T = Accumulator<E>;
  Shape shape;
  TokenTensor<const E> x{};
  bool of_queries = false;
  TokenScalars<const T> weights{};  // null: ones
  double factor = 1;
  T* sums = nullptr;  // rows of key_pad
  const T* initial_z = nullptr;
  T* final_z = nullptr;  // null: not wanted
};
template <typename E>
void sum_features(const FeatureSumArgs<E>& args, cudaStream_t stream);

template <typename E>
struct DenominatorArgs {
  using T = Accumulator<E>;
  Shape shape;
  TokenTensor<const E> q{}, k{};  // of the denominator
  bool authors = false;
  const T* sums = nullptr;  // paper: z~ by S~ row; authors: z by S row
  T* slots = nullptr;       // authors: [S~ rows, capacity], y
  TokenScalars<T> denominator{};
};
template <typename E>
void denominators(const DenominatorArgs<E>& args, cudaStream_t stream);

// dU = d_o / den and g = d den = -(d_o . o) / den, with denominators given or, from q and z~, made on the way.
template <typename E>
struct NormalizedGradientArgs {
  using T = Accumulator<E>;
  Shape shape;
  TokenTensor<const E> q{};
  const T* z = nullptr;  // by S~ row; null: denominators are given
  TokenTensor<const E> o{}, d_o{};
  TokenScalars<const T> denominator{};
  TokenTensor<E> dU{};
  TokenScalars<T> g{};
};
template <typename E>
void normalized_gradient(const NormalizedGradientArgs<E>& args, cudaStream_t stream);

// The authors' normaliser: dy[b, w] = sum_i m[i, b] g[i, w] per token, and d m[i, b] = sum_w g[i, w] y[b, w].
template <typename E>
struct AuthorsGradientArgs {
  using T = Accumulator<E>;
  Shape shape;
  const T* slots = nullptr;  // y
  T* g_slots = nullptr;      // workspace like slots
  TokenScalars<const T> g{};
  TokenScalars<T> dy{};
  T* pairs = nullptr;  // [sequences, heads, M, M]; null: not wanted
};
template <typename E>
void authors_gradient(const AuthorsGradientArgs<E>& args, cudaStream_t stream);

// dz of entries whose own block alone uses it: the sum over the query heads of a kv head, plus d_final.
template <typename E>
struct OwnSumsArgs {
  using T = Accumulator<E>;
  Shape shape;
  const T* from = nullptr;  // S~ rows; spread: S rows
  const T* d_final_z = nullptr;
  T* to = nullptr;  // S rows; spread: S~ rows
};
template <typename E>
void gather_own_sums(const OwnSumsArgs<E>& args, cudaStream_t stream);
// The other way: z_b of the kv head to every query head's row.
template <typename E>
void spread_own_sums(const OwnSumsArgs<E>& args, cudaStream_t stream);

// Gradients of separate q_den and k_den.
template <typename E>
struct SeparateGradientArgs {
  using T = Accumulator<E>;
  Shape shape;
  TokenTensor<const E> q{}, k{};
  TokenScalars<const T> g{};    // coefficient of q's own vector: g, or dy of the authors' normaliser
  const T* q_vector = nullptr;  // z~ by S~ row, or z by S row when `own`
  bool own = false;
  const T* dz = nullptr;  // by S row
  TokenTensor<E> d_q{}, d_k{};
  T* diagonal = nullptr;  // [S~ rows, diagonal_parts], this one fills part `diagonal_part`; null: not wanted
  int diagonal_parts = 0, diagonal_part = 0;
};
template <typename E>
void separate_gradient(const SeparateGradientArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda
