// What happens when a block is complete: its summary joins the state and P is mixed for the next block. The columns of
// S and P belong to the thread block that reads them and within it to one thread each; z, P_z and the diagonal have no
// columns: the first thread block of the kv head closes z, the last to arrive mixes, when no other reads P_z any more.
#pragma once

#include "cuda/decode/params.cuh"

namespace mhla::cuda::decode {

// Vectors of S a thread has in registers: sums while a block is closed, sums and twice as many on their way while
// summaries are mixed.
template <int V>
constexpr int kClosed = V > 4 ? 8 : 16;
template <int V>
constexpr int kMixed = kClosed<V> / 2;

// Rows whose phi(k) and v are in shared memory at a time: for_each() has no more of them for a thread than of a chunk.
constexpr int closing_rows(int key_dim, int width) {
  const int rows = 4096 / (key_dim + width);
  return rows < 1 ? 1 : rows < 16 ? rows : 16;
}

template <typename E, typename A>
__device__ std::int64_t slot_of(const DecodeParams<E, A>& c, int group, std::int64_t block) {
  return group * c.policy.slots + block % c.policy.slots;
}

// phi(k) [count, Dk] and v [count, width] of the rows from `begin` on; all threads take part.
template <typename E, typename A, int V, int D>
__device__ void stage_rows(const DecodeParams<E, A>& c, const Slice<E, V, D>& slice, const Piece& piece, int begin,
                           int count, Accumulator<E>* keys, Accumulator<E>* values) {
  using T = Accumulator<E>;
  constexpr int kN = kKeys<E, V>;
  __syncthreads();
  for (int d = slice.key_lane() * kN; d < slice.key_dim; d += kN << slice.key_bits) {
    T* const to = keys + slice.key_row() * slice.key_dim + d;
    open_keys(c, slice, piece)
        .template for_each<kKeyRows>(begin + slice.key_row(), begin + count, slice.key_groups(),
                                     [&](int n, const E* row) {
                                       T x[kN];
                                       load<kN>(row + d, x);
#pragma unroll
                                       for (int i = 0; i < kN; ++i) x[i] = at_least(c.floor, x[i]);
                                       store<kN>(to + n * slice.key_dim, x);
                                     });
  }
  T* const to = values + slice.row * slice.width + slice.lane * V;
  if (slice.active)
    open_values(c, slice, piece)
        .template for_each<kValueRows>(begin + slice.row, begin + count, slice.groups, [&](int n, const E* row) {
          T x[V];
          load<V>(row + slice.column, x);
          store<V>(to + n * slice.width, x);
        });
  __syncthreads();
  if (c.is_floor) return;
  for (int x = static_cast<int>(threadIdx.x); x < count * slice.key_dim; x += kThreads) keys[x] = c.feature(keys[x]);
  __syncthreads();
}

// S_b = sum_s phi(k_s) v_s^T and z_b = sum_s phi(k_s), and the folding of the block that leaves.
template <typename E, typename A, int V, int D>
__device__ void close_summary(const DecodeParams<E, A>& c, const Slice<E, V, D>& slice, const Piece& piece,
                              std::int64_t block, Accumulator<E>* shared) {
  using T = Accumulator<E>;
  constexpr int kRows = kSet<E, V>, kSets = kClosed<V> / kRows;
  T* const keys = shared;
  const int most = closing_rows(slice.key_dim, slice.width);
  T* const values = keys + most * slice.key_dim;
  const int size = slice.key_dim * slice.value_dim;
  const std::int64_t leaving = c.policy.leaving(block), slot = slot_of(c, slice.group, block);
  const std::int64_t leaving_slot = leaving < 0 ? 0 : slot_of(c, slice.group, leaving);
  T* const z = c.z == nullptr || slice.split != 0 ? nullptr : c.z + slot * slice.key_dim;

  for (int set = 0; set * slice.groups * kRows < slice.key_dim; set += kSets) {
    T sums[kSets][kRows][V] = {};
    for (int begin = 0; begin < c.block_size; begin += most) {
      const int count = min(most, c.block_size - begin);
      stage_rows(c, slice, piece, begin, count, keys, values);
      if (z != nullptr && set == 0)
        for (int d = static_cast<int>(threadIdx.x); d < slice.key_dim; d += kThreads) {
          T sum = begin == 0 ? T(0) : z[d];
          for (int s = 0; s < count; ++s) sum += keys[s * slice.key_dim + d];
          z[d] = sum;
        }
      for (int s = 0; s < count; ++s) {
        T v[V];
        load<V>(values + s * slice.width + slice.lane * V, v);
#pragma unroll
        for (int j = 0; j < kSets; ++j) {
          const int d = slice.first_row(set + j);
          if (d >= slice.key_dim) continue;
          T k[kRows];
          load<kRows>(keys + s * slice.key_dim + d, k);
#pragma unroll
          for (int u = 0; u < kRows; ++u)
#pragma unroll
            for (int i = 0; i < V; ++i) sums[j][u][i] += k[u] * v[i];
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kSets; ++j) {
      const int d = slice.first_row(set + j);
      if (!slice.active || d >= slice.key_dim) continue;
      const int at = d * slice.value_dim + slice.column;
#pragma unroll
      for (int u = 0; u < kRows; ++u) store<V>(c.S + slot * size + at + u * slice.value_dim, sums[j][u]);
      if (leaving < 0) continue;
      T oldest[kRows][V], folded[kRows][V];
      T* const to = c.folded_S + static_cast<std::int64_t>(slice.group) * size + at;
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
        load<V>(c.S + leaving_slot * size + at + u * slice.value_dim, oldest[u]);
        load<V>(to + u * slice.value_dim, folded[u]);
      }
#pragma unroll
      for (int u = 0; u < kRows; ++u) {
#pragma unroll
        for (int i = 0; i < V; ++i) folded[u][i] += oldest[u][i];
        store<V>(to + u * slice.value_dim, folded[u]);
      }
    }
  }
  if (z != nullptr && leaving >= 0)
    for (int d = static_cast<int>(threadIdx.x); d < slice.key_dim; d += kThreads)
      c.folded_z[static_cast<std::int64_t>(slice.group) * slice.key_dim + d] += c.z[leaving_slot * slice.key_dim + d];
}

// The row of the matrix for query block `block`; all threads take part.
template <typename E, typename A>
__device__ MixingRow<Accumulator<E>> mixing_row(const DecodeParams<E, A>& c, int mixed_head, std::int64_t block) {
  __shared__ double sums[2][kThreads / 32];
  const std::int64_t M = c.policy.trained;
  MixingRow<Accumulator<E>> row{c.mixing + (c.mixing_per_head ? mixed_head * M * M : 0), M, block, c.policy.beyond};
  if (!row.is_interpolated()) return row;
  double trained_sum = 0, sum = 0;
#pragma unroll 1
  for (std::int64_t b = threadIdx.x; b < M; b += kThreads) trained_sum += row.last(b);
#pragma unroll 1
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

// Calls f(weights, slot, count) for the blocks that are mixed one by one into block i, `count` at a time: the weights
// are in shared memory, the first block is in `slot`, the others in those after it. All threads take part.
template <typename E, typename A, typename F>
__device__ void for_each_chunk(const DecodeParams<E, A>& c, const MixingRow<Accumulator<E>>& row, std::int64_t i,
                               F&& f) {
  __shared__ Accumulator<E> weights[kChunk];
  for (std::int64_t begin = c.policy.first(i); begin < i; begin += kChunk) {
    const auto count = static_cast<int>(min(i - begin, std::int64_t{kChunk}));
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < count) weights[threadIdx.x] = row[begin + threadIdx.x];
    __syncthreads();
    f(weights, static_cast<int>(begin % c.policy.slots), count);
  }
}

// P = sum_{b < i} m[i, b] S_b for the query heads of the kv head. While one summary is added the next is on its way.
template <typename E, typename A, int V, int D>
__device__ void mix_summaries(const DecodeParams<E, A>& c, const Slice<E, V, D>& slice, std::int64_t i) {
  using T = Accumulator<E>;
  constexpr int kRows = kSet<E, V>, kSets = kMixed<V> / kRows;
  const int size = slice.key_dim * slice.value_dim;
  const auto slots = static_cast<int>(c.policy.slots);
  const A* const S = c.S + slice.group * c.policy.slots * size;
  const T* const folded = c.folded_S + static_cast<std::int64_t>(slice.group) * size;
  for (int m = 0; m < c.mixed_in_group; ++m) {
    const int mixed_head = slice.kv_head * c.mixed_in_group + m;
    const MixingRow<T> row = mixing_row(c, mixed_head, i);
    A* const P = c.P + (static_cast<std::int64_t>(slice.batch) * c.mixed_heads + mixed_head) * size;
    for (int set = 0; set * slice.groups * kRows < slice.key_dim; set += kSets) {
      const int first = slice.first_row(set) * slice.value_dim + slice.column;
      T sums[kSets][kRows][V] = {};
      // f(j, u, distance from the thread's first vector) for its vectors of a matrix.
      const auto for_each_vector = [&](auto&& f) {
#pragma unroll
        for (int j = 0; j < kSets; ++j) {
          if (!slice.has(set + j)) continue;
#pragma unroll
          for (int u = 0; u < kRows; ++u) f(j, u, (slice.steps(j) + u) * slice.value_dim);
        }
      };
      const auto add = [](T weight, const auto& pack, T(&sum)[V]) {
        T x[V];
        unpack(pack, x);
#pragma unroll
        for (int n = 0; n < V; ++n) sum[n] += weight * x[n];
      };
      if (c.policy.is_folded(i)) {
        const T weight = row[0];
        for_each_vector([&](int j, int u, int at) { add(weight, read_pack<V>(folded + first + at), sums[j][u]); });
      }
      for_each_chunk(c, row, i, [&](const T* weights, int slot, int count) {
        Pack<A, V> even[kSets][kRows], odd[kSets][kRows];
        const auto fetch = [&](auto& to) {
          const A* const from = S + static_cast<std::int64_t>(slot) * size + first;
          for_each_vector([&](int j, int u, int at) { to[j][u] = read_once<V>(from + at); });
          if (++slot == slots) slot = 0;
        };
        fetch(even);
#pragma unroll 1
        for (int b = 0; b < count; b += 2) {
          if (b + 1 < count) fetch(odd);
          for_each_vector([&](int j, int u, int) { add(weights[b], even[j][u], sums[j][u]); });
          if (b + 1 == count) break;
          if (b + 2 < count) fetch(even);
          for_each_vector([&](int j, int u, int) { add(weights[b + 1], odd[j][u], sums[j][u]); });
        }
      });
      for_each_vector([&](int j, int u, int at) { store<V>(P + first + at, sums[j][u]); });
    }
  }
}

// P_z and m[i, i] for the query heads of the kv head.
template <typename E, typename A, int V, int D>
__device__ void mix_sums(const DecodeParams<E, A>& c, const Slice<E, V, D>& slice, std::int64_t i) {
  using T = Accumulator<E>;
  for (int m = 0; m < c.mixed_in_group; ++m) {
    const int mixed_head = slice.kv_head * c.mixed_in_group + m;
    const std::int64_t mixed = static_cast<std::int64_t>(slice.batch) * c.mixed_heads + mixed_head;
    const MixingRow<T> row = mixing_row(c, mixed_head, i);
    if (threadIdx.x == 0) c.diagonal[mixed] = row[i];
    if (c.z == nullptr) continue;
    const T* const folded = c.policy.is_folded(i) ? c.folded_z + slice.group * std::int64_t{slice.key_dim} : nullptr;
    for (int begin = 0; begin < slice.key_dim; begin += kThreads) {
      const int d = min(begin + static_cast<int>(threadIdx.x), slice.key_dim - 1);
      T sum = folded == nullptr ? T(0) : row[0] * folded[d];
      for_each_chunk(c, row, i, [&](const T* weights, int slot, int count) {
        const T* const z = c.z + slice.group * c.policy.slots * slice.key_dim + d;
#pragma unroll 4
        for (int b = 0; b < count; ++b) {
          sum += weights[b] * z[static_cast<std::int64_t>(slot) * slice.key_dim];
          if (++slot == c.policy.slots) slot = 0;
        }
      });
      if (begin + static_cast<int>(threadIdx.x) < slice.key_dim) c.P_z[mixed * slice.key_dim + d] = sum;
    }
  }
}

}  // namespace mhla::cuda::decode
