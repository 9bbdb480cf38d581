// Outputs of the tokens of one step that fall into one block. With a row r = (token t, query head) and a column c,
//
//   o[r, c] = (sum_d q[r, d] P[d, c] + sum_{s <= t} w[r, s] v[s, c]) / den[r]      w[r, s] = m[i, i] q[r] . phi(k_s)
//   den[r]  = eps + sum_d q[r, d] P_z[d] + sum_{s <= t} w[r, s]
//
// so P and v are one product with the row (q[r] | w[r]). P is read once. Everything is asked for at the start: first
// vectors of P into registers, the rest of it and the rows of k and v into the L2 cache.
#pragma once

#include "cuda/decode/call.cuh"

namespace mhla::cuda::decode {

constexpr int kChunk = 64;    // rows of the open block whose weights are in shared memory at a time
constexpr int kHeld = 8;      // vectors of P a thread waits for while it works on the weights
constexpr int kTogether = 4;  // rows of k a thread has on their way

// Elements of T: q [R, Dk], weights [R, kChunk], denominators [R], partial sums [groups, R, width].
template <int V, int R>
constexpr int read_shared(int key_dim) {
  return R * (key_dim + kChunk + 1) + kThreads * V * R;
}

template <typename E, typename A, int V, int R>
class Reader {
  using T = Accumulator<E>;
  static constexpr int kKeys = V == 1 ? 1 : static_cast<int>(16 / sizeof(E));  // elements of k a thread loads at once
  static_assert(R <= kThreads / 32, "each warp sums the denominator of one row");

 public:
  __device__ Reader(const Call<E, A>& c, const Part<E, V>& part, T* shared)
      : c_(c), slice_(part.slice), piece_(part.piece), k_(part.k), v_(part.v), q_(shared), weights_(q_ + R * c.key_dim),
        denominators_(weights_ + R * kChunk), partial_(denominators_ + R) {}

  // All rows of the query heads that share P number `mixed` of the kv head.
  __device__ void read(int mixed) {
    mixed_head_ = slice_.kv_head * c_.mixed_in_group() + mixed;
    mixed_ = slice_.batch * c_.mixed_heads + mixed_head_;
    diagonal_ = c_.diagonal[mixed_];
    const int rows = static_cast<int>(piece_.count) * c_.queries();
    for (int first = 0; first < rows; first += R) read_tile(first, rows);
  }

 private:
  __device__ int token_of(int row) const { return row / c_.queries(); }  // of the piece
  template <typename Pointer>
  __device__ std::int64_t offset_of(const BasicTensor<Pointer>& x, int row) const {
    return slice_.batch * x.batch_stride + (piece_.first + token_of(row)) * x.token_stride +
           (mixed_head_ * c_.queries() + row % c_.queries()) * x.head_stride;
  }

  __device__ void read_tile(int first, int rows) {
    const A* const P = c_.P + mixed_ * c_.key_dim * c_.value_dim + slice_.column;
    Pack<A, V> held[kHeld];
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int d = slice_.row + j * slice_.groups;
      if (slice_.active && d < c_.key_dim) held[j] = read_pack<V>(P + static_cast<std::int64_t>(d) * c_.value_dim);
    }
    const int visible = static_cast<int>(piece_.filled) + token_of(min(first + R, rows) - 1) + 1;
    if (first == 0) ask_for_the_rest(P, visible);
    load_queries(first, rows);
    __syncthreads();

    make_weights(first, 0, min(visible, kChunk));
    T sums[R][V] = {};
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      const int d = slice_.row + j * slice_.groups;
      if (slice_.active && d < c_.key_dim) add(held[j], q_ + d, c_.key_dim, sums);
    }
    if (slice_.active) {
#pragma unroll 4
      for (int d = slice_.row + kHeld * slice_.groups; d < c_.key_dim; d += slice_.groups)
        add(read_pack<V>(P + static_cast<std::int64_t>(d) * c_.value_dim), q_ + d, c_.key_dim, sums);
    }
    T denominator = 0;  // of row `warp`, this lane's part
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const bool sums_denominator = c_.P_z != nullptr && warp < R;
    if (sums_denominator)
      for (int d = lane; d < c_.key_dim; d += 32)
        denominator += q_[warp * c_.key_dim + d] * c_.P_z[mixed_ * c_.key_dim + d];

    for (int begin = 0;;) {
      const int end = min(visible, begin + kChunk);
      __syncthreads();
      if (slice_.active) {
#pragma unroll 4
        for (int s = begin + slice_.row; s < end; s += slice_.groups)
          add(read_pack<V>(v_[s] + slice_.column), weights_ + s - begin, kChunk, sums);
      }
      if (sums_denominator)
        for (int s = lane; s < end - begin; s += 32) denominator += weights_[warp * kChunk + s];
      begin = end;
      if (begin == visible) break;
      __syncthreads();
      make_weights(first, begin, min(visible, begin + kChunk));
    }
    denominator = warp_sum(denominator);
    if (warp < R && lane == 0) denominators_[warp] = c_.P_z != nullptr ? denominator + c_.eps : T(1);
    write(first, rows, sums);
  }

  __device__ void ask_for_the_rest(const A* P, int visible) {
    if (slice_.active) {
      for (int d = slice_.row + kHeld * slice_.groups; d < c_.key_dim; d += slice_.groups)
        prefetch(P + static_cast<std::int64_t>(d) * c_.value_dim);
      for (int s = slice_.row; s < visible; s += slice_.groups) prefetch(v_[s] + slice_.column);
    }
    const int lane = static_cast<int>(threadIdx.x) % c_.key_lanes;
    for (int s = static_cast<int>(threadIdx.x) / c_.key_lanes; s < visible; s += kThreads / c_.key_lanes)
      for (int d = lane * kKeys; d < c_.key_dim; d += c_.key_lanes * kKeys) prefetch(k_[s] + d);
  }

  __device__ void load_queries(int first, int rows) {
    for (int x = static_cast<int>(threadIdx.x); x < R * c_.key_dim; x += kThreads) {
      const int row = first + x / c_.key_dim;
      T value = 0;
      if (row < rows)
        value = c_.scale *
                c_.feature(to_accumulator(static_cast<const E*>(c_.q.data)[offset_of(c_.q, row) + x % c_.key_dim]));
      q_[x] = value;
    }
  }

  // weights_[r, s - begin] for s in [begin, end), zero where the row's token may not see s.
  __device__ void make_weights(int first, int begin, int end) {
    const int lane = static_cast<int>(threadIdx.x) % c_.key_lanes;
    const int groups = kThreads / c_.key_lanes;
    for (int base = begin + static_cast<int>(threadIdx.x) / c_.key_lanes, bound = begin; bound < end;
         base += groups * kTogether, bound += groups * kTogether) {
      T dots[kTogether][R] = {};
      for (int d = lane * kKeys; d < c_.key_dim; d += c_.key_lanes * kKeys) {
        const E* rows[kTogether];
#pragma unroll
        for (int u = 0; u < kTogether; ++u) rows[u] = k_[min(base + u * groups, end - 1)] + d;
        if (c_.feature.is_floor())
          add_keys(rows, q_ + d, dots);
        else
          add_any_features(rows, q_ + d, dots);
      }
#pragma unroll
      for (int u = 0; u < kTogether; ++u) {
        const int s = base + u * groups;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          const T dot = warp_sum(dots[u][r], c_.key_lanes);
          if (lane == 0 && s < end)
            weights_[r * kChunk + s - begin] =
                s <= static_cast<int>(piece_.filled) + token_of(first + r) ? diagonal_ * dot : T(0);
        }
      }
    }
  }

  // dots[u, r] += q[r] . phi(rows[u]) over kKeys elements, where phi is identity or relu.
  __device__ void add_keys(const E* const (&rows)[kTogether], const T* q, T (&dots)[kTogether][R]) const {
    Pack<E, kKeys> packs[kTogether];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) packs[u] = read_pack<kKeys>(rows[u]);
    const T floor = static_cast<T>(c_.feature.floor());
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
      T keys[kKeys];
      unpack(packs[u], keys);
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const T key = keys[i] < floor ? floor : keys[i];
#pragma unroll
        for (int r = 0; r < R; ++r) dots[u][r] += q[r * c_.key_dim + i] * key;
      }
    }
  }

  // The same for any phi, whose code is too large to be repeated for every element of a vector.
  __device__ void add_any_features(const E* const (&rows)[kTogether], const T* q, T (&dots)[kTogether][R]) const {
#pragma unroll 1
    for (int i = 0; i < kKeys; ++i) {
      T keys[kTogether];
#pragma unroll
      for (int u = 0; u < kTogether; ++u) keys[u] = c_.feature(to_accumulator(rows[u][i]));
#pragma unroll
      for (int u = 0; u < kTogether; ++u)
#pragma unroll
        for (int r = 0; r < R; ++r) dots[u][r] += q[r * c_.key_dim + i] * keys[u];
    }
  }

  // sums[r] += factors[r * stride] x
  template <typename X>
  __device__ static void add(const Pack<X, V>& pack, const T* factors, int stride, T (&sums)[R][V]) {
    T x[V];
    unpack(pack, x);
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const T factor = factors[r * stride];
#pragma unroll
      for (int i = 0; i < V; ++i) sums[r][i] += factor * x[i];
    }
  }

  __device__ void write(int first, int rows, const T (&sums)[R][V]) {
#pragma unroll
    for (int r = 0; r < R; ++r)
#pragma unroll
      for (int i = 0; i < V; ++i) partial_[(slice_.row * R + r) * c_.width + slice_.lane * V + i] = sums[r][i];
    __syncthreads();
    for (int x = static_cast<int>(threadIdx.x); x < R * c_.width; x += kThreads) {
      const int r = x / c_.width, column = slice_.split * c_.width + x % c_.width;
      if (first + r >= rows || column >= c_.value_dim) continue;
      T sum = 0;
      for (int g = 0; g < slice_.groups; ++g) sum += partial_[g * R * c_.width + x];
      static_cast<E*>(c_.o.data)[offset_of(c_.o, first + r) + column] = to_element<E>(sum / denominators_[r]);
    }
    __syncthreads();
  }

  const Call<E, A>& c_;
  const Slice<V>& slice_;
  const DecodePiece& piece_;
  const OpenRows<E>& k_;
  const OpenRows<E>& v_;
  T* q_;
  T* weights_;
  T* denominators_;
  T* partial_;
  int mixed_head_ = 0;
  std::int64_t mixed_ = 0;
  T diagonal_ = 0;
};

}  // namespace mhla::cuda::decode
