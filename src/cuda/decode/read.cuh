// Outputs of the tokens of one step that fall into one block. With a row r = (token t, query head) and a column c,
//
//   o[r, c] = (sum_d q[r, d] P[d, c] + sum_{s <= t} w[r, s] v[s, c]) / den[r]      w[r, s] = m[i, i] q[r] . phi(k_s)
//   den[r]  = eps + sum_d q[r, d] P_z[d] + sum_{s <= t} w[r, s]
//
// so P and v are one product with the row (q[r] | w[r]). P is read once. All of it, k and v is on its way before
// anything is waited for (at D = 128 and blocks of 64): P to registers, k and v to shared memory, where every thread
// looks only at what it asked for itself.
#pragma once

#include "cuda/decode/params.cuh"

namespace mhla::cuda::decode {

// Vectors of P a thread has on their way at once: with D = 128 all it has, except in double.
template <typename A, int D>
constexpr int kHeld = D > 0 && sizeof(A) == 4 ? 16 : 8;

// Elements of T: partial sums [groups, R, width], q [R, Dk], weights [R, kChunk], denominators [R].
template <int V, int R>
constexpr int read_shared(int key_dim) {
  return kThreads * V * R + R * (key_dim + kChunk + 1);
}

// With D the layout is known, and that there is one row.
template <typename E, typename A, int V, int R, int D>
class Reader {
  using T = Accumulator<E>;
  static constexpr int kN = kKeys<E, V>, kRows = kSet<E, V>, kSets = kHeld<A, D> / kRows;
  static_assert(R <= kThreads / 32, "each warp sums the denominator of one row");

 public:
  // shared: k [chunk, Dk] and v [chunk, width] of E, then what read_shared() counts.
  __device__ Reader(const DecodeParams<E, A>& c, const Slice<E, V, D>& slice, void* shared)
      : c_(c), slice_(slice), keys_(static_cast<E*>(shared)), values_(keys_ + slice.chunk * slice.key_dim),
        partial_(reinterpret_cast<T*>(static_cast<char*>(shared) + slice.rows_bytes)), q_(partial_ + kThreads * V * R),
        weights_(q_ + R * slice.key_dim), denominators_(weights_ + R * kChunk) {}

  // All rows of the query heads of the kv head.
  __device__ Piece read() {
    if constexpr (D > 0) {
      mixed_head_ = slice_.kv_head;
      read_tile(0);
    } else {
      for (int m = 0; m < c_.mixed_in_group; ++m) {
        mixed_head_ = slice_.kv_head * c_.mixed_in_group + m;
        int first = 0;
        do {
          slice_ = Slice<E, V, D>(c_);
          read_tile(first);
          first += R;
        } while (first < rows_);
      }
    }
    return piece_;
  }

 private:
  __device__ int token_of(int row) const { return D > 0 ? 0 : c_.by_queries.divide(row); }  // of the piece
  template <typename Pointer>
  __device__ std::int64_t offset_of(const BasicTensor<Pointer>& x, int row) const {
    const int token = token_of(row);
    const int head = D > 0 ? mixed_head_ : mixed_head_ * c_.queries + row - token * c_.queries;
    return slice_.batch * x.batch_stride + (piece_.first + token) * x.token_stride + head * x.head_stride;
  }

  // Rows [first, first + R) of those that share a P.
  __device__ void read_tile(int first) {
    const std::int64_t seen = c_.tokens[slice_.batch];
    const std::int64_t mixed = static_cast<std::int64_t>(slice_.batch) * c_.mixed_heads + mixed_head_;
    const T diagonal = c_.diagonal[mixed];
    const A* const P = c_.P + (mixed * slice_.key_dim + slice_.first_row(0)) * slice_.value_dim + slice_.column;
    Pack<A, V> held[kSets][kRows] = {};
    load(held, P, 0);
    piece_ = Piece(c_, seen);
    rows_ = D > 0 ? 1 : piece_.count * c_.queries;
    const int visible = piece_.filled + token_of(min(first + R, rows_) - 1) + 1;
    T sums[R][V] = {};
    T denominator = 0;  // of row `warp`, this lane's part
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const bool sums_denominator = c_.P_z != nullptr && warp < R;
    for (int begin = 0, end; begin < visible; begin = end) {
      end = min(visible, begin + slice_.chunk);
      ask_for_rows(begin, end);
      if (begin == 0) {
        load_queries(first);
        if constexpr (D > 0) ask_for_next();
      }
      copy_wait<1>();
      __syncthreads();
      make_weights(first, begin, end, diagonal);
      if (begin == 0) {
        add(held, 0, sums);
#pragma unroll 2
        for (int set = kSets; slice_.first_row(set) < slice_.key_dim; ++set) {
          Pack<A, V> more[1][kRows] = {};
          load(more, P, set);
          add(more, set, sums);
        }
        if (sums_denominator)
#pragma unroll 1
          for (int d = lane; d < slice_.key_dim; d += 32)
            denominator += q_[warp * slice_.key_dim + d] * c_.P_z[mixed * slice_.key_dim + d];
      }
      copy_wait<0>();
      __syncthreads();
      add_values(end - begin, sums);
      if (sums_denominator)
        for (int s = lane; s < end - begin; s += 32) denominator += weights_[warp * kChunk + s];
    }
    if (sums_denominator) {
      denominator = warp_sum(denominator);
      if (lane == 0) denominators_[warp] = denominator + c_.eps;
    }
    write(first, sums);
  }

  template <int N>
  __device__ void load(Pack<A, V> (&held)[N][kRows], const A* P, int first_set) const {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (!slice_.has(first_set + j)) continue;
#pragma unroll
      for (int u = 0; u < kRows; ++u)
        held[j][u] = read_pack<V>(P + (slice_.steps(first_set + j) + u) * slice_.value_dim);
    }
  }

  // sums[r] += q[r] P over the rows held.
  template <int N>
  __device__ void add(const Pack<A, V> (&held)[N][kRows], int first_set, T (&sums)[R][V]) const {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (!slice_.has(first_set + j)) continue;
#pragma unroll
      for (int r = 0; r < R; ++r) {
        T q[kRows];
        decode::load<kRows>(q_ + r * slice_.key_dim + slice_.first_row(first_set + j), q);
#pragma unroll
        for (int u = 0; u < kRows; ++u) add(held[j][u], q[u], sums[r]);
      }
    }
  }

  __device__ void load_queries(int first) const {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const bool exists = first + r < rows_;
      const E* const q = static_cast<const E*>(c_.q.data) + offset_of(c_.q, exists ? first + r : first);
#pragma unroll 1
      for (int d = static_cast<int>(threadIdx.x); d < slice_.key_dim; d += kThreads)
        q_[r * slice_.key_dim + d] = exists ? c_.scale * feature(to_accumulator(q[d])) : T(0);
    }
  }

  __device__ T feature(T x) const { return c_.is_floor ? at_least(c_.floor, x) : c_.feature(x); }

  // Rows [begin, end) of k and v, in two groups of copies.
  __device__ void ask_for_rows(int begin, int end) const {
#pragma unroll 1
    for (int d = slice_.key_lane() * kN; d < slice_.key_dim; d += kN << slice_.key_bits) {
      E* const to = keys_ + slice_.key_row() * slice_.key_dim + d;
      open_keys(c_, slice_, piece_)
          .template for_each<kKeyRows>(begin + slice_.key_row(), end, slice_.key_groups(),
                                       [&](int n, const E* row) { copy_pack<kN>(to + n * slice_.key_dim, row + d); });
    }
    copy_commit();
    E* const to = values_ + slice_.row * slice_.width + slice_.lane * V;
    if (slice_.active)
      open_values(c_, slice_, piece_)
          .template for_each<kValueRows>(begin + slice_.row, end, slice_.groups, [&](int n, const E* row) {
            copy_pack<V>(to + n * slice_.width, row + slice_.column);
          });
    copy_commit();
  }

  // While this thread block computes, what the one after it will read moves into the L2 cache.
  __device__ void ask_for_next() const {
    const int next = slice_.group + c_.at_once;
    if (threadIdx.x != 0 || next >= static_cast<int>(gridDim.x)) return;
    const auto rows = static_cast<std::uint32_t>(piece_.filled) * D * sizeof(E);
    const std::int64_t first = static_cast<std::int64_t>(next) * c_.block_size * D;
    prefetch(c_.P + static_cast<std::int64_t>(next) * D * D, D * D * sizeof(A));
    prefetch(c_.k_rows + first, rows);
    prefetch(c_.v_rows + first, rows);
  }

  __device__ int key_row(int u) const { return slice_.key_row() + u * slice_.key_groups(); }

  // weights_[r, s - begin] for s in [begin, end), zero where the row's token may not see s.
  __device__ void make_weights(int first, int begin, int end, T diagonal) const {
    T dots[kKeyRows][R] = {};
#pragma unroll 1
    for (int d = slice_.key_lane() * kN; d < slice_.key_dim; d += kN << slice_.key_bits) {
      if (c_.is_floor)
        add_keys(end - begin, d, dots);
      else
        add_any_features(end - begin, d, dots);
    }
#pragma unroll 1
    for (int offset = 1 << slice_.key_bits >> 1; offset > 0; offset >>= 1)
#pragma unroll
      for (int u = 0; u < kKeyRows; ++u)
#pragma unroll
        for (int r = 0; r < R; ++r) dots[u][r] += __shfl_xor_sync(0xffffffffU, dots[u][r], offset);
    if (slice_.key_lane() != 0) return;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int seen = R == 1 ? end : min(end, piece_.filled + token_of(first + r) + 1);
#pragma unroll
      for (int u = 0; u < kKeyRows; ++u) {
        const int s = key_row(u);
        if (s < end - begin) weights_[r * kChunk + s] = begin + s < seen ? diagonal * dots[u][r] : T(0);
      }
    }
  }

  // dots[u, r] += q[r] . phi(k) over kN elements, where phi is identity or relu.
  __device__ void add_keys(int count, int d, T (&dots)[kKeyRows][R]) const {
    T q[R][kN];
#pragma unroll
    for (int r = 0; r < R; ++r) decode::load<kN>(q_ + r * slice_.key_dim + d, q[r]);
#pragma unroll
    for (int u = 0; u < kKeyRows; ++u) {
      const int s = key_row(u);
      if (s >= count) break;
      T key[kN];
      decode::load<kN>(keys_ + s * slice_.key_dim + d, key);
#pragma unroll
      for (int i = 0; i < kN; ++i) {
        key[i] = at_least(c_.floor, key[i]);
#pragma unroll
        for (int r = 0; r < R; ++r) dots[u][r] += q[r][i] * key[i];
      }
    }
  }

  // The same for any phi, whose code is too large to be repeated for every element of a vector.
  __device__ void add_any_features(int count, int d, T (&dots)[kKeyRows][R]) const {
#pragma unroll 1
    for (int i = d; i < d + kN; ++i) {
#pragma unroll
      for (int u = 0; u < kKeyRows; ++u) {
        const int s = key_row(u);
        if (s >= count) break;
        const T key = c_.feature(to_accumulator(keys_[s * slice_.key_dim + i]));
#pragma unroll
        for (int r = 0; r < R; ++r) dots[u][r] += q_[r * slice_.key_dim + i] * key;
      }
    }
  }

  // sums[r] += weights[r] v over the rows of a chunk.
  __device__ void add_values(int count, T (&sums)[R][V]) const {
    if (!slice_.active) return;
#pragma unroll
    for (int u = 0; u < kValueRows; ++u) {
      const int s = slice_.row + u * slice_.groups;
      if (s >= count) break;
      const Pack<E, V> pack = read_pack<V>(values_ + s * slice_.width + slice_.lane * V);
#pragma unroll
      for (int r = 0; r < R; ++r) add(pack, weights_[r * kChunk + s], sums[r]);
    }
  }

  // sum += factor x
  template <typename X>
  __device__ static void add(const Pack<X, V>& pack, T factor, T (&sum)[V]) {
    T x[V];
    unpack(pack, x);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] += factor * x[i];
  }

  // Groups within a warp add up by shuffles, what is left through shared memory.
  __device__ void write(int first, T (&sums)[R][V]) const {
    const int bits = max(slice_.lane_bits, 5), group = static_cast<int>(threadIdx.x) >> bits;
#pragma unroll 1
    for (int offset = 16; offset >= 1 << slice_.lane_bits; offset >>= 1)
#pragma unroll
      for (int r = 0; r < R; ++r)
#pragma unroll
        for (int i = 0; i < V; ++i) sums[r][i] += __shfl_xor_sync(0xffffffffU, sums[r][i], offset);
    if (static_cast<int>(threadIdx.x) % 32 >> slice_.lane_bits == 0)
#pragma unroll
      for (int r = 0; r < R; ++r) store<V>(partial_ + (group * R + r) * slice_.width + slice_.lane * V, sums[r]);
    __syncthreads();
    const int groups = kThreads >> bits;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      const int x = static_cast<int>(threadIdx.x), column = slice_.split * slice_.width + x;
      if (first + r >= rows_ || x >= slice_.width || column >= slice_.value_dim) continue;
      T sum = 0;
#pragma unroll 8
      for (int g = 0; g < groups; ++g) sum += partial_[(g * R + r) * slice_.width + x];
      if (c_.P_z != nullptr) sum /= denominators_[r];
      static_cast<E*>(c_.o.data)[offset_of(c_.o, first + r) + column] = to_element<E>(sum);
    }
    __syncthreads();
  }

  const DecodeParams<E, A>& c_;
  Slice<E, V, D> slice_;
  Piece piece_;
  int mixed_head_ = 0, rows_ = 0;  // rows: tokens of the piece x query heads that share the P
  E* keys_;
  E* values_;
  T* partial_;
  T* q_;
  T* weights_;
  T* denominators_;
};

}  // namespace mhla::cuda::decode
