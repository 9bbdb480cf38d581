// What happens when a block is complete: its summary joins the state and P is mixed for the next block. The columns of
// S and P belong to the thread block that reads them and within it to one thread each; z, P_z and the diagonal have no
// columns and are the matter of one thread block of the kv head, when no other reads them any more.
#pragma once

#include "cuda/decode/call.cuh"

namespace mhla::cuda::decode {

constexpr int kRows = 4;  // rows of S a thread has in registers

template <typename E, typename A>
__device__ std::int64_t slot_of(const Call<E, A>& c, std::int64_t group, std::int64_t block) {
  return group * c.policy.slots + block % c.policy.slots;
}

// Calls f(d) for each row of S, kRows at a time, that the thread's group has. The order is the same for every user.
template <int V, typename F>
__device__ void for_each_rows(const Slice<V>& slice, int key_dim, F&& f) {
  if (!slice.active) return;
  for (int d = slice.row * kRows; d < key_dim; d += slice.groups * kRows) f(d);
}

// S_b = sum_s phi(k_s) v_s^T, and the folding of the block that leaves.
template <typename E, typename A, int V>
__device__ void close_summary(const Call<E, A>& c, const Slice<V>& slice, std::int64_t block, const OpenRows<E>& k,
                              const OpenRows<E>& v) {
  using T = Accumulator<E>;
  const std::int64_t size = static_cast<std::int64_t>(c.key_dim) * c.value_dim;
  const std::int64_t leaving = c.policy.leaving(block);
  for_each_rows(slice, c.key_dim, [&](int first) {
    T sums[kRows][V] = {};
    for (int s = 0; s < c.block_size; ++s) {
      T values[V], keys[kRows];
      load<V>(v[s] + slice.column, values);
#pragma unroll
      for (int u = 0; u < kRows; ++u) keys[u] = c.feature(to_accumulator(k[s][min(first + u, c.key_dim - 1)]));
#pragma unroll
      for (int u = 0; u < kRows; ++u)
#pragma unroll
        for (int i = 0; i < V; ++i) sums[u][i] += keys[u] * values[i];
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      if (first + u >= c.key_dim) break;
      const std::int64_t at = static_cast<std::int64_t>(first + u) * c.value_dim + slice.column;
      store<V>(c.S + slot_of(c, slice.group, block) * size + at, sums[u]);
      if (leaving < 0) continue;
      T oldest[V], folded[V];
      load<V>(c.S + slot_of(c, slice.group, leaving) * size + at, oldest);
      load<V>(c.folded_S + slice.group * size + at, folded);
#pragma unroll
      for (int i = 0; i < V; ++i) folded[i] += oldest[i];
      store<V>(c.folded_S + slice.group * size + at, folded);
    }
  });
}

// The row of the matrix for query block `block`; all threads take part.
template <typename E, typename A>
__device__ MixingRow<Accumulator<E>> mixing_row(const Call<E, A>& c, int mixed_head, std::int64_t block) {
  __shared__ double sums[2][kThreads / 32];
  const std::int64_t M = c.policy.trained;
  MixingRow<Accumulator<E>> row{c.mixing + (c.mixing_per_head ? mixed_head * M * M : 0), M, block, c.policy.beyond};
  if (!row.is_interpolated()) return row;
  double trained_sum = 0, sum = 0;
  for (std::int64_t b = threadIdx.x; b < M; b += kThreads) trained_sum += row.last(b);
  for (std::int64_t b = threadIdx.x; b <= block; b += kThreads) sum += row.interpolated(b);
  trained_sum = warp_sum(trained_sum);
  sum = warp_sum(sum);
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    sums[0][threadIdx.x / 32] = trained_sum;
    sums[1][threadIdx.x / 32] = sum;
  }
  __syncthreads();
  trained_sum = sum = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) {
    trained_sum += sums[0][warp];
    sum += sums[1][warp];
  }
  row.set_stretch(trained_sum, sum);
  return row;
}

// P = sum_{b < i} m[i, b] S_b for the query heads of the kv head.
template <typename E, typename A, int V>
__device__ void mix_summaries(const Call<E, A>& c, const Slice<V>& slice, std::int64_t i) {
  using T = Accumulator<E>;
  const std::int64_t size = static_cast<std::int64_t>(c.key_dim) * c.value_dim;
  for (int m = 0; m < c.mixed_in_group(); ++m) {
    const int mixed_head = slice.kv_head * c.mixed_in_group() + m;
    const MixingRow<T> row = mixing_row(c, mixed_head, i);
    A* const P = c.P + (slice.batch * c.mixed_heads + mixed_head) * size;
    for_each_rows(slice, c.key_dim, [&](int first) {
      T sums[kRows][V] = {};
      const auto add = [&](T weight, const auto* from) {
#pragma unroll
        for (int u = 0; u < kRows; ++u) {
          T x[V];
          load<V>(from + static_cast<std::int64_t>(min(first + u, c.key_dim - 1)) * c.value_dim + slice.column, x);
#pragma unroll
          for (int n = 0; n < V; ++n) sums[u][n] += weight * x[n];
        }
      };
      if (c.policy.is_folded(i)) add(row[0], c.folded_S + slice.group * size);
      std::int64_t slot = c.policy.first(i) % c.policy.slots;
#pragma unroll 2
      for (std::int64_t b = c.policy.first(i); b < i; ++b) {
        add(row[b], c.S + (slice.group * c.policy.slots + slot) * size);
        if (++slot == c.policy.slots) slot = 0;
      }
#pragma unroll
      for (int u = 0; u < kRows; ++u)
        if (first + u < c.key_dim)
          store<V>(P + static_cast<std::int64_t>(first + u) * c.value_dim + slice.column, sums[u]);
    });
  }
}

// z_b = sum_s phi(k_s), and the folding of the block that leaves.
template <typename E, typename A>
__device__ void close_sums(const Call<E, A>& c, std::int64_t group, std::int64_t block, const OpenRows<E>& k) {
  using T = Accumulator<E>;
  if (c.z == nullptr) return;
  const std::int64_t leaving = c.policy.leaving(block);
  for (int d = static_cast<int>(threadIdx.x); d < c.key_dim; d += kThreads) {
    T sum = 0;
    for (int s = 0; s < c.block_size; ++s) sum += c.feature(to_accumulator(k[s][d]));
    c.z[slot_of(c, group, block) * c.key_dim + d] = sum;
    if (leaving >= 0) c.folded_z[group * c.key_dim + d] += c.z[slot_of(c, group, leaving) * c.key_dim + d];
  }
}

// P_z and m[i, i] for the query heads of the kv head.
template <typename E, typename A>
__device__ void mix_sums(const Call<E, A>& c, std::int64_t group, std::int64_t i) {
  using T = Accumulator<E>;
  const std::int64_t batch = group / c.kv_heads;
  for (int m = 0; m < c.mixed_in_group(); ++m) {
    const int mixed_head = static_cast<int>(group % c.kv_heads) * c.mixed_in_group() + m;
    const std::int64_t mixed = batch * c.mixed_heads + mixed_head;
    const MixingRow<T> row = mixing_row(c, mixed_head, i);
    if (threadIdx.x == 0) c.diagonal[mixed] = row[i];
    if (c.z == nullptr) continue;
    for (int d = static_cast<int>(threadIdx.x); d < c.key_dim; d += kThreads) {
      T sum = c.policy.is_folded(i) ? row[0] * c.folded_z[group * c.key_dim + d] : T(0);
      for (std::int64_t b = c.policy.first(i); b < i; ++b) sum += row[b] * c.z[slot_of(c, group, b) * c.key_dim + d];
      c.P_z[mixed * c.key_dim + d] = sum;
    }
  }
}

}  // namespace mhla::cuda::decode
