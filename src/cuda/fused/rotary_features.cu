// y = rotate(f), with f = phi(u) + feature_eps, u = xhat weight and xhat = x / rms(x); without a norm u = x. The
// derivation of the backward pass is in cpu/fused.
//
// A chunk is two vectors, so that a thread holds both elements of a pair: neighbouring vectors of adjacent pairs, or
// vectors R / 2 apart of half-split ones. Either way a chunk has V pairs that follow each other in the tables.
//
// Bytes: forward reads x and writes y (and the plain features); backward reads x, d_y (and d_plain) and writes d_x.
// Tables come from the cache: all heads of a token read the same row of them.
#include "cuda/fused/fused.hpp"
#include "cuda/fused/weight_gradient.cuh"
#include "cuda/support/features.cuh"

namespace mhla::cuda {
namespace {

using namespace rows;
using fused::NormScope;
using fused::RotaryFeatures;
using fused::RotaryLayout;

constexpr int kFew = 256;  // chunks of a row that get a thread each

// How the chunks of a head lie, and where a pair finds its angle.
struct Pairs {
  bool half;
  bool vectorised;     // rows of the tables can be read in vectors
  int pairs;           // of a head
  int rotated_chunks;  // half-split: chunks of a head that hold pairs; the others hold the elements after them
  int chunks_per_head;
  int axes;
  std::int64_t sizes[3];
  std::int64_t table_begin[3];  // first entry of an axis' table
  int pairs_of[3], first_pair[3];
  const void* cos;
  const void* sin;
  std::int64_t table_stride;
};

// A chunk of two vectors: elements lo.. and hi.. of head `head` of the row (hi < 0: there is no second vector).
struct PairChunk {
  int head, lo, hi, pair;

  template <typename Element, typename Pointer>
  __device__ __forceinline__ auto* low(const BasicTensor<Pointer>& tensor, Element* row) const {
    return row + head * tensor.head_stride + lo;
  }
  template <typename Element, typename Pointer>
  __device__ __forceinline__ auto* high(const BasicTensor<Pointer>& tensor, Element* row) const {
    return row + head * tensor.head_stride + hi;
  }
  // Column of element i of the 2 V elements.
  template <int V>
  __device__ __forceinline__ int column(int dim, int i) const {
    if (i < V) return head * dim + lo + i;
    return hi < 0 ? -1 : head * dim + hi + i - V;
  }
};

template <int V>
__device__ __forceinline__ PairChunk pair_chunk(const Geometry& g, const Pairs& pairs, int chunk) {
  PairChunk at{};
  at.head = g.whole_tokens ? chunk / pairs.chunks_per_head : 0;
  const int j = chunk - at.head * pairs.chunks_per_head;
  const int dim = static_cast<int>(g.dim);
  if (pairs.half && j < pairs.rotated_chunks) {
    at.pair = j * V;
    at.lo = at.pair;
    at.hi = at.pair + pairs.pairs;
    return at;
  }
  const int skipped = pairs.half ? 2 * pairs.pairs : 0;
  at.lo = skipped + 2 * V * (pairs.half ? j - pairs.rotated_chunks : j);
  at.hi = at.lo + V < dim ? at.lo + V : -1;
  at.pair = pairs.half ? pairs.pairs : at.lo / 2;
  return at;
}

template <int V, typename Element, typename T>
__device__ __forceinline__ void load_chunk(const ConstTensor& tensor, const Element* row, const PairChunk& at,
                                           T* values) {
  load<V>(at.low(tensor, row), values);
  if (at.hi >= 0) {
    load<V>(at.high(tensor, row), values + V);
  } else {
#pragma unroll
    for (int i = V; i < 2 * V; ++i) values[i] = T(0);
  }
}

template <int V, typename Element, typename T>
__device__ __forceinline__ void store_chunk(const Tensor& tensor, Element* row, const PairChunk& at, const T* values) {
  store<V>(at.low(tensor, row), values);
  if (at.hi >= 0) store<V>(at.high(tensor, row), values + V);
}

template <int V, typename T>
__device__ __forceinline__ void load_weight(const fused::ConstVector& weight, int dim, const PairChunk& at, T* values) {
  load_any<V>(weight.data, weight.dtype, at.head * dim + at.lo, T(1), values);
  load_any<V>(at.hi < 0 ? nullptr : weight.data, weight.dtype, at.head * dim + at.hi, T(1), values + V);
}

// Entry of the tables for pair 0 of each axis, at the position of a row.
struct Angles {
  std::int64_t entry[3];
};

__device__ __forceinline__ Angles angles_of(const Pairs& pairs, const ThreadRow& row) {
  Angles angles{};
  std::int64_t token = row.token;
#pragma unroll
  for (int axis = 2; axis >= 0; --axis) {
    if (axis >= pairs.axes) continue;
    std::int64_t coordinate = token;
    if (axis > 0) divide(token, pairs.sizes[axis], token, coordinate);
    angles.entry[axis] = row.batch * pairs.table_stride + pairs.table_begin[axis] + coordinate * pairs.pairs_of[axis] -
                         pairs.first_pair[axis];
  }
  return angles;
}

// Turns the pairs of a chunk, forth (`direction` 1) or back (-1).
template <int V, typename T>
__device__ __forceinline__ void rotate(const Pairs& pairs, const Angles& angles, const PairChunk& at, T direction,
                                       T* values) {
  if (at.pair >= pairs.pairs) return;
  const auto* const cos_table = static_cast<const T*>(pairs.cos);
  const auto* const sin_table = static_cast<const T*>(pairs.sin);
  T cos[V], sin[V];
  if (pairs.vectorised) {
    load<V>(cos_table + angles.entry[0] + at.pair, cos);
    load<V>(sin_table + angles.entry[0] + at.pair, sin);
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const int pair = at.pair + i;
      std::int64_t entry = angles.entry[0];
      if (pairs.axes > 1 && pair >= pairs.first_pair[1]) entry = angles.entry[1];
      if (pairs.axes > 2 && pair >= pairs.first_pair[2]) entry = angles.entry[2];
      const bool turns = pair < pairs.pairs;
      cos[i] = turns ? cos_table[entry + pair] : T(1);
      sin[i] = turns ? sin_table[entry + pair] : T(0);
    }
  }
  const auto turn = [&](T& a, T& b, T c, T s) {
    const T turned = a * c - b * s;
    b = a * s + b * c;
    a = turned;
  };
  if (pairs.half) {
#pragma unroll
    for (int i = 0; i < V; ++i) turn(values[i], values[V + i], cos[i], direction * sin[i]);
  } else {
#pragma unroll
    for (int i = 0; i < V; ++i) turn(values[2 * i], values[2 * i + 1], cos[i], direction * sin[i]);
  }
}

template <typename T>
struct Settings {
  bool normed;
  T norm_eps;
  Feature feature;
};

template <typename Element, int V, int K>
__global__ void __launch_bounds__(kMostThreads<K>)
    rotary_features_forward(Geometry g, Pairs pairs, Settings<Accumulator<Element>> settings, RotaryFeatures::Inputs in,
                            Tensor y, Tensor plain) {
  using T = Accumulator<Element>;
  const int lane = lane_of(g);
  std::int64_t batch, tile;
  divide(blockIdx.x, g.tiles, batch, tile);
  const ThreadRow row = row_of_thread(g, batch, tile);
  const auto* const x_row = static_cast<const Element*>(in.x.data) + offset_of(in.x, row);
  auto* const y_row = static_cast<Element*>(y.data) + offset_of(y, row);
  auto* const plain_row = static_cast<Element*>(plain.data) + offset_of(plain, row);

  T f[kHeld<K>][2 * V], squares[1] = {T(0)};
  if (row.active)
    for_each_chunk<K>(g, lane, [&](int k, int chunk) {
      load_chunk<V>(in.x, x_row, pair_chunk<V>(g, pairs, chunk), f[k]);
#pragma unroll
      for (int i = 0; i < 2 * V; ++i) squares[0] += f[k][i] * f[k][i];
    });
  if (settings.normed) row_sum(g, squares);
  if (!row.active) return;
  const T inverse_rms = rsqrt(squares[0] / static_cast<T>(g.width) + settings.norm_eps);
  const Angles angles = angles_of(pairs, row);
  for_each_chunk<K>(g, lane, [&](int k, int chunk) {
    const PairChunk at = pair_chunk<V>(g, pairs, chunk);
    if constexpr (K == 0) load_chunk<V>(in.x, x_row, at, f[k]);
    if (settings.normed) {
      T weight[2 * V];
      load_weight<V>(in.weight, static_cast<int>(g.dim), at, weight);
#pragma unroll
      for (int i = 0; i < 2 * V; ++i) f[k][i] *= inverse_rms * weight[i];
    }
    apply<2 * V>(settings.feature, f[k]);
    if (plain.data != nullptr) store_chunk<V>(plain, plain_row, at, f[k]);
    rotate<V>(pairs, angles, at, T(1), f[k]);
    store_chunk<V>(y, y_row, at, f[k]);
  });
}

template <typename Element, int V, int K>
__global__ void __launch_bounds__(kMostThreads<K>)
    rotary_features_backward(Geometry g, Slots slots, Pairs pairs, Settings<Accumulator<Element>> settings,
                             RotaryFeatures::Inputs in, ConstTensor d_y, ConstTensor d_plain, Tensor d_x,
                             Accumulator<Element>* partial) {
  using T = Accumulator<Element>;
  const int lane = lane_of(g);
  const int dim = static_cast<int>(g.dim);
  T* const slot = partial != nullptr ? partial + blockIdx.x * g.width : nullptr;
  T d_weight[kHeld<K>][2 * V] = {};
  if constexpr (K == 0) {
    if (slot != nullptr)
      for_each_chunk<K>(g, lane, [&](int, int chunk) {
        const PairChunk at = pair_chunk<V>(g, pairs, chunk);
        for (int i = 0; i < 2 * V; ++i)
          if (at.template column<V>(dim, i) >= 0) slot[at.template column<V>(dim, i)] = T(0);
      });
  }
  for (std::int64_t batch = blockIdx.x / slots.rows; batch < g.batch; batch += slots.batch)
    for (std::int64_t tile = blockIdx.x % slots.rows; tile < g.tiles; tile += slots.rows) {
      const ThreadRow row = row_of_thread(g, batch, tile);
      const auto* const x_row = static_cast<const Element*>(in.x.data) + offset_of(in.x, row);
      const auto* const d_y_row = static_cast<const Element*>(d_y.data) + offset_of(d_y, row);
      const auto* const d_plain_row = static_cast<const Element*>(d_plain.data) + offset_of(d_plain, row);
      auto* const d_x_row = static_cast<Element*>(d_x.data) + offset_of(d_x, row);
      const Angles angles = angles_of(pairs, row);

      T xhat[kHeld<K>][2 * V], d[kHeld<K>][2 * V];
      const auto read = [&](int k, const PairChunk& at) {
        load_chunk<V>(in.x, x_row, at, xhat[k]);
        if (d_y.data != nullptr) load_chunk<V>(d_y, d_y_row, at, d[k]);
      };
      T squares[1] = {T(0)};
      if (row.active)
        for_each_chunk<K>(g, lane, [&](int k, int chunk) {
          read(k, pair_chunk<V>(g, pairs, chunk));
#pragma unroll
          for (int i = 0; i < 2 * V; ++i) squares[0] += xhat[k][i] * xhat[k][i];
        });
      if (settings.normed) row_sum(g, squares);
      const T inverse_rms = settings.normed ? rsqrt(squares[0] / static_cast<T>(g.width) + settings.norm_eps) : T(1);

      // From x to xhat and to d = d_xhat; on the way the gradient of the weight, when `first`.
      const auto differentiate = [&](int k, const PairChunk& at, bool first) {
        T weight[2 * V], u[2 * V];
        load_weight<V>(in.weight, dim, at, weight);
#pragma unroll
        for (int i = 0; i < 2 * V; ++i) {
          xhat[k][i] *= inverse_rms;
          u[i] = xhat[k][i] * weight[i];
          if (d_y.data == nullptr) d[k][i] = T(0);
        }
        if (d_y.data != nullptr) rotate<V>(pairs, angles, at, T(-1), d[k]);
        if (d_plain.data != nullptr) {
          T more[2 * V];
          load_chunk<V>(d_plain, d_plain_row, at, more);
#pragma unroll
          for (int i = 0; i < 2 * V; ++i) d[k][i] += more[i];
        }
        multiply_by_derivative<2 * V>(settings.feature, u, d[k]);
#pragma unroll
        for (int i = 0; i < 2 * V; ++i) {
          if constexpr (K == 0) {
            const int column = at.template column<V>(dim, i);
            if (first && slot != nullptr && column >= 0) slot[column] += d[k][i] * xhat[k][i];
          } else {
            d_weight[k][i] += d[k][i] * xhat[k][i];
          }
          d[k][i] *= weight[i];
        }
      };
      T mean[1] = {T(0)};
      if (row.active)
        for_each_chunk<K>(g, lane, [&](int k, int chunk) {
          const PairChunk at = pair_chunk<V>(g, pairs, chunk);
          if constexpr (K == 0) read(k, at);
          differentiate(k, at, true);
#pragma unroll
          for (int i = 0; i < 2 * V; ++i) mean[0] += d[k][i] * xhat[k][i];
        });
      if (settings.normed) {
        row_sum(g, mean);
        mean[0] /= static_cast<T>(g.width);
      } else {
        mean[0] = T(0);
      }
      if (row.active)
        for_each_chunk<K>(g, lane, [&](int k, int chunk) {
          const PairChunk at = pair_chunk<V>(g, pairs, chunk);
          if constexpr (K == 0) read(k, at), differentiate(k, at, false);
#pragma unroll
          for (int i = 0; i < 2 * V; ++i) d[k][i] = inverse_rms * (d[k][i] - xhat[k][i] * mean[0]);
          store_chunk<V>(d_x, d_x_row, at, d[k]);
        });
    }
  if constexpr (K > 0) {
    extern __shared__ double shared[];
    if (slot == nullptr) return;
    write_slot(g, d_weight, slot, reinterpret_cast<T*>(shared), [&](int k, int i) {
      const int chunk = lane + k * g.threads;
      return chunk < g.chunks ? pair_chunk<V>(g, pairs, chunk).template column<V>(dim, i) : -1;
    });
  }
}

Pairs make_pairs(const RotaryFeatures& p, const RotaryFeatures::Inputs& in, int V) {
  Pairs pairs{};
  pairs.axes = p.rotary.axes;
  pairs.pairs = pairs.axes > 0 ? static_cast<int>(p.rotary.all_pairs()) : 0;
  pairs.half = pairs.pairs > 0 && p.rotary.layout == RotaryLayout::half;
  for (int axis = 0; axis < pairs.axes; ++axis) {
    pairs.sizes[axis] = p.rotary.sizes[axis];
    pairs.pairs_of[axis] = static_cast<int>(p.rotary.pairs[axis]);
    if (axis == 0) continue;
    pairs.first_pair[axis] = pairs.first_pair[axis - 1] + pairs.pairs_of[axis - 1];
    pairs.table_begin[axis] = pairs.table_begin[axis - 1] + pairs.sizes[axis - 1] * pairs.pairs_of[axis - 1];
  }
  pairs.cos = in.cos;
  pairs.sin = in.sin;
  pairs.table_stride = in.table_stride;
  pairs.vectorised =
      pairs.axes == 1 && pairs.pairs % V == 0 && in.table_stride % V == 0 && aligned(in.cos) && aligned(in.sin);
  pairs.rotated_chunks = pairs.half ? pairs.pairs / V : 0;
  const int others = static_cast<int>(p.dim) - (pairs.half ? 2 * pairs.pairs : 0);
  pairs.chunks_per_head = pairs.rotated_chunks + (others + 2 * V - 1) / (2 * V);
  return pairs;
}

bool vectors_fit(const RotaryFeatures& p, const RotaryFeatures::Inputs& in) {
  const int V = vector_elements(p.dtype);
  const bool half = p.rotary.axes > 0 && p.rotary.layout == RotaryLayout::half;
  return p.dim % V == 0 && (!half || p.rotary.all_pairs() % V == 0) && vectorisable(in.x, V) && vectorisable(in.weight);
}

template <typename T>
Settings<T> make_settings(const RotaryFeatures& p) {
  return {p.norm != NormScope::none, static_cast<T>(p.norm_eps), {p.feature_map, p.feature_eps}};
}

int chunks_of(const RotaryFeatures& p, const Pairs& pairs) {
  return pairs.chunks_per_head * (p.norm == NormScope::channels ? static_cast<int>(p.heads) : 1);
}

}  // namespace

void forward(const RotaryFeatures& p, const RotaryFeatures::Forward& args) {
  const int V = vector_elements(p.dtype);
  const bool vectorised = vectors_fit(p, args.in) && vectorisable(args.y, V) && vectorisable(args.plain, V);
  const int chunks = chunks_of(p, make_pairs(p, args.in, V));
  with_variant(p.dtype, vectorised, chunks, kFew, [&]<typename Element, int kV, int K>() {
    const Pairs pairs = make_pairs(p, args.in, kV);
    const Geometry g = make_geometry(rows_of(p), chunks_of(p, pairs), K);
    const unsigned blocks = grid_of(g.batch * g.tiles, "rotary_features");
    rotary_features_forward<Element, kV, K><<<blocks, g.block(), 0, static_cast<cudaStream_t>(args.run.stream)>>>(
        g, pairs, make_settings<Accumulator<Element>>(p), args.in, args.y, args.plain);
  });
  check(cudaGetLastError(), "rotary_features");
}

void backward(const RotaryFeatures& p, const RotaryFeatures::Backward& args) {
  const int V = vector_elements(p.dtype);
  const Slots slots = slots_of(p);
  const auto stream = static_cast<cudaStream_t>(args.run.stream);
  const bool vectorised = vectors_fit(p, args.in) && vectorisable(args.d_y, V) && vectorisable(args.d_plain, V) &&
                          vectorisable(args.d_x, V);
  const int chunks = chunks_of(p, make_pairs(p, args.in, V));
  with_variant(p.dtype, vectorised, chunks, kFew, [&]<typename Element, int kV, int K>() {
    using T = Accumulator<Element>;
    const Pairs pairs = make_pairs(p, args.in, kV);
    const Geometry g = make_geometry(rows_of(p), chunks_of(p, pairs), K);
    T* const partial = args.d_weight.data != nullptr ? static_cast<T*>(args.run.workspace) : nullptr;
    rotary_features_backward<Element, kV, K>
        <<<grid_of(slots.count(), "rotary_features"), g.block(), shared_bytes<T>(g), stream>>>(
            g, slots, pairs, make_settings<T>(p), args.in, args.d_y, args.d_plain, args.d_x, partial);
    check(cudaGetLastError(), "rotary_features_backward");
    if (partial != nullptr) launch_add_slots<T>(partial, slots.count(), g.width, args.d_weight, stream);
  });
}

}  // namespace mhla::cuda
