// y = (xhat weight + bias) (1 + scale) + shift, with xhat = (x - mean) / deviation. The derivation of the backward pass
// is in cpu/fused.
//
// Bytes: forward reads x and writes y; backward reads x, d_y and writes d_x. Per token, also scale and shift (and their
// gradients); per batch row these come from the cache.
#include "cuda/fused/fused.hpp"
#include "cuda/support/rows.cuh"

namespace mhla::cuda {
namespace {

using namespace rows;
using fused::Modulate;
using fused::Modulation;
using ConstRows = Modulate::BasicRows<const void*>;
using MutableRows = Modulate::BasicRows<void*>;

constexpr int kFew = 32;                         // chunks of a row that get a thread each
constexpr std::int64_t kBlocksWanted = 1 << 13;  // more blocks than this are joined into walks

template <typename Pointer>
__device__ __forceinline__ std::int64_t offset_of(const Modulate::BasicRows<Pointer>& rows, const ThreadRow& row) {
  return row.batch * rows.batch_stride + row.token * rows.token_stride;
}

// From xhat to y, in place. One parameter after the other: few registers, many rows in flight.
template <int V, typename T>
__device__ __forceinline__ void modulate_chunk(const Modulate::Inputs& in, const ThreadRow& row, int column, T* x) {
  T parameter[V];
  if (in.weight.data != nullptr) {
    load_any<V>(in.weight.data, in.weight.dtype, column, T(1), parameter);
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] *= parameter[i];
  }
  if (in.bias.data != nullptr) {
    load_any<V>(in.bias.data, in.bias.dtype, column, T(0), parameter);
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] += parameter[i];
  }
  if (in.scale.data != nullptr) {
    load_any<V>(in.scale.data, in.scale.dtype, offset_of(in.scale, row) + column, T(0), parameter);
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] *= T(1) + parameter[i];
  }
  if (in.shift.data != nullptr) {
    load_any<V>(in.shift.data, in.shift.dtype, offset_of(in.shift, row) + column, T(0), parameter);
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] += parameter[i];
  }
}

// Mean and 1 / deviation of a row; `read(k, chunk)` fills x[k].
template <int K, int V, typename T, typename Read>
__device__ __forceinline__ void statistics(const Geometry& g, int lane, bool active, T eps, T (&x)[kHeld<K>][V],
                                           Read&& read, T& mean, T& inverse_deviation) {
  T sum[1] = {T(0)};
  if (active)
    for_each_chunk<K>(g, lane, [&](int k, int chunk) {
      read(k, chunk);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[0] += x[k][i];
    });
  row_sum(g, sum);
  mean = sum[0] / static_cast<T>(g.width);
  T squares[1] = {T(0)};
  if (active)
    for_each_chunk<K>(g, lane, [&](int k, int chunk) {
      if constexpr (K == 0) read(k, chunk);
#pragma unroll
      for (int i = 0; i < V; ++i) squares[0] += (x[k][i] - mean) * (x[k][i] - mean);
    });
  row_sum(g, squares);
  inverse_deviation = rsqrt(squares[0] / static_cast<T>(g.width) + eps);
}

// A block walks over `walk` tiles of one batch row, whose scale and shift it finds in its cache again.
template <typename Element, int V, int K>
__global__ void __launch_bounds__(kMostThreads<K>)
    modulate_forward(Geometry g, std::int64_t walk, Modulate::Inputs in, Tensor y, Accumulator<Element> eps) {
  using T = Accumulator<Element>;
  const int lane = lane_of(g);
  std::int64_t batch, first;
  divide(blockIdx.x, (g.tiles + walk - 1) / walk, batch, first);
  first *= walk;
  const std::int64_t end = first + walk < g.tiles ? first + walk : g.tiles;
  for (std::int64_t tile = first; tile < end; ++tile) {
    const ThreadRow row = row_of_thread(g, batch, tile);
    const auto* const x_row = static_cast<const Element*>(in.x.data) + rows::offset_of(in.x, row);
    auto* const y_row = static_cast<Element*>(y.data) + rows::offset_of(y, row);
    T x[kHeld<K>][V], mean, inverse_deviation;
    const auto read = [&](int k, int chunk) { load<V>(x_row + chunk * V, x[k]); };
    statistics<K, V>(g, lane, row.active, eps, x, read, mean, inverse_deviation);
    if (row.active)
      for_each_chunk<K>(g, lane, [&](int k, int chunk) {
        if constexpr (K == 0) read(k, chunk);
#pragma unroll
        for (int i = 0; i < V; ++i) x[k][i] = (x[k][i] - mean) * inverse_deviation;
        modulate_chunk<V>(in, row, chunk * V, x[k]);
        store<V>(y_row + chunk * V, x[k]);
      });
  }
}

// Writes d_x, per token d_scale and d_shift, and the slots of A = sum e xhat and E = sum e, where e is d_y, per token
// d_y (1 + scale).
template <typename Element, int V, int K>
__global__ void __launch_bounds__(kMostThreads<K>)
    modulate_backward(Geometry g, Slots slots, bool per_token, Modulate::Inputs in, ConstTensor d_y, Tensor d_x,
                      MutableRows d_scale, MutableRows d_shift, Accumulator<Element>* partial,
                      Accumulator<Element> eps) {
  using T = Accumulator<Element>;
  const int lane = lane_of(g);
  T* const slot_A = partial != nullptr ? partial + blockIdx.x * g.width : nullptr;
  T* const slot_E = partial != nullptr ? slot_A + slots.count() * g.width : nullptr;
  T A[kHeld<K>][V] = {}, E[kHeld<K>][V] = {};
  if constexpr (K == 0) {
    if (partial != nullptr)
      for_each_chunk<K>(g, lane, [&](int, int chunk) {
        for (int i = 0; i < V; ++i) slot_A[chunk * V + i] = slot_E[chunk * V + i] = T(0);
      });
  }
  for (std::int64_t batch = blockIdx.x / slots.rows; batch < g.batch; batch += slots.batch)
    for (std::int64_t tile = blockIdx.x % slots.rows; tile < g.tiles; tile += slots.rows) {
      const ThreadRow row = row_of_thread(g, batch, tile);
      const auto* const x_row = static_cast<const Element*>(in.x.data) + rows::offset_of(in.x, row);
      const auto* const d_y_row = static_cast<const Element*>(d_y.data) + rows::offset_of(d_y, row);
      auto* const d_x_row = static_cast<Element*>(d_x.data) + rows::offset_of(d_x, row);
      T xhat[kHeld<K>][V], d[kHeld<K>][V], mean, inverse_deviation;
      const auto read = [&](int k, int chunk) {
        load<V>(x_row + chunk * V, xhat[k]);
        load<V>(d_y_row + chunk * V, d[k]);
      };
      statistics<K, V>(g, lane, row.active, eps, xhat, read, mean, inverse_deviation);

      // From x to xhat and from d_y to d_xhat; on the way what else is wanted, when `first`.
      const auto differentiate = [&](int k, int chunk, bool first) {
        const int column = chunk * V;
        T weight[V], scale[V], e[V];
        load_any<V>(in.weight.data, in.weight.dtype, column, T(1), weight);
        load_any<V>(in.scale.data, in.scale.dtype, offset_of(in.scale, row) + column, T(0), scale);
#pragma unroll
        for (int i = 0; i < V; ++i) {
          xhat[k][i] = (xhat[k][i] - mean) * inverse_deviation;
          e[i] = per_token ? d[k][i] * (T(1) + scale[i]) : d[k][i];
        }
        if (first && per_token && d_shift.data != nullptr)
          store_any<V>(d_shift.data, d_shift.dtype, offset_of(d_shift, row) + column, d[k]);
        if (first && per_token && d_scale.data != nullptr) {
          T value[V];
          load_any<V>(in.bias.data, in.bias.dtype, column, T(0), value);
#pragma unroll
          for (int i = 0; i < V; ++i) value[i] = d[k][i] * (xhat[k][i] * weight[i] + value[i]);
          store_any<V>(d_scale.data, d_scale.dtype, offset_of(d_scale, row) + column, value);
        }
#pragma unroll
        for (int i = 0; i < V; ++i) {
          if constexpr (K == 0) {
            if (first && partial != nullptr) slot_A[column + i] += e[i] * xhat[k][i], slot_E[column + i] += e[i];
          } else {
            A[k][i] += e[i] * xhat[k][i];
            E[k][i] += e[i];
          }
          d[k][i] *= weight[i] * (T(1) + scale[i]);
        }
      };
      T sums[2] = {T(0), T(0)};
      if (row.active)
        for_each_chunk<K>(g, lane, [&](int k, int chunk) {
          if constexpr (K == 0) read(k, chunk);
          differentiate(k, chunk, true);
#pragma unroll
          for (int i = 0; i < V; ++i) sums[0] += d[k][i], sums[1] += d[k][i] * xhat[k][i];
        });
      row_sum(g, sums);
      sums[0] /= static_cast<T>(g.width);
      sums[1] /= static_cast<T>(g.width);
      if (row.active)
        for_each_chunk<K>(g, lane, [&](int k, int chunk) {
          if constexpr (K == 0) read(k, chunk), differentiate(k, chunk, false);
#pragma unroll
          for (int i = 0; i < V; ++i) d[k][i] = inverse_deviation * (d[k][i] - sums[0] - xhat[k][i] * sums[1]);
          store<V>(d_x_row + chunk * V, d[k]);
        });
    }
  if constexpr (K > 0) {
    extern __shared__ double shared[];
    if (partial == nullptr) return;
    const auto column = [&](int k, int i) {
      const int chunk = lane + k * g.threads;
      return chunk < g.chunks ? chunk * V + i : -1;
    };
    write_slot(g, A, slot_A, reinterpret_cast<T*>(shared), column);
    write_slot(g, E, slot_E, reinterpret_cast<T*>(shared), column);
  }
}

// d_scale = weight A + bias E and d_shift = E, for 32 columns of one batch row.
template <typename T>
__global__ void __launch_bounds__(kWarp* kWarp)
    batch_gradients(const T* partial, Slots slots, std::int64_t width, std::int64_t tiles, Modulate::Inputs in,
                    MutableRows d_scale, MutableRows d_shift) {
  std::int64_t batch, tile;
  divide(blockIdx.x, tiles, batch, tile);
  const std::int64_t column = tile * kWarp + threadIdx.x;
  const bool inside = column < width;
  const T* const all_A = partial + batch * slots.rows * width + column;
  const T* const all_E = all_A + slots.count() * width;
  const T A = slot_sum<T>(slots.rows, [&](std::int64_t slot) { return inside ? all_A[slot * width] : T(0); });
  const T E = slot_sum<T>(slots.rows, [&](std::int64_t slot) { return inside ? all_E[slot * width] : T(0); });
  if (!inside || threadIdx.y != 0) return;
  T weight, bias;
  load_any<1>(in.weight.data, in.weight.dtype, column, T(1), &weight);
  load_any<1>(in.bias.data, in.bias.dtype, column, T(0), &bias);
  const T of_scale = weight * A + bias * E;
  if (d_scale.data != nullptr)
    store_any<1>(d_scale.data, d_scale.dtype, batch * d_scale.batch_stride + column, &of_scale);
  if (d_shift.data != nullptr) store_any<1>(d_shift.data, d_shift.dtype, batch * d_shift.batch_stride + column, &E);
}

// d_weight = sum t A and d_bias = sum t E over all slots, with t = 1 + scale (per token it is in A and E already).
template <typename T>
__global__ void __launch_bounds__(kWarp* kWarp)
    weight_gradients(const T* partial, Slots slots, std::int64_t width, bool per_token, ConstRows scale,
                     fused::Vector d_weight, fused::Vector d_bias) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  const bool inside = column < width;
  const auto total = [&](const T* of_slots) {
    return slot_sum<T>(slots.count(), [&](std::int64_t slot) {
      if (!inside) return T(0);
      T t = T(0);
      if (!per_token) load_any<1>(scale.data, scale.dtype, slot / slots.rows * scale.batch_stride + column, T(0), &t);
      return (T(1) + t) * of_slots[slot * width + column];
    });
  };
  const T A = total(partial), E = total(partial + slots.count() * width);
  if (!inside || threadIdx.y != 0) return;
  if (d_weight.data != nullptr) store_any<1>(d_weight.data, d_weight.dtype, column, &A);
  if (d_bias.data != nullptr) store_any<1>(d_bias.data, d_bias.dtype, column, &E);
}

template <typename Pointer>
bool rows_vectorisable(const Modulate::BasicRows<Pointer>& rows, int V) {
  return rows.data == nullptr || (aligned(rows.data) && rows.batch_stride % V == 0 && rows.token_stride % V == 0);
}

template <typename Pointer>
bool tokens_vectorisable(const BasicTensor<Pointer>& tensor, int V) {
  return vectorisable(BasicTensor<Pointer>{tensor.data, tensor.batch_stride, tensor.token_stride, 0}, V);
}

bool vectors_fit(const Modulate& p, const Modulate::Inputs& in) {
  const int V = vector_elements(p.dtype);
  return p.channels % V == 0 && tokens_vectorisable(in.x, V) && vectorisable(in.weight) && vectorisable(in.bias) &&
         rows_vectorisable(in.scale, V) && rows_vectorisable(in.shift, V);
}

}  // namespace

void forward(const Modulate& p, const Modulate::Forward& args) {
  const Rows rows = rows_of(p);
  const int V = vector_elements(p.dtype);
  const bool vectorised = vectors_fit(p, args.in) && tokens_vectorisable(args.y, V);
  with_variant(p.dtype, vectorised, rows.width() / V, kFew, [&]<typename Element, int kV, int K>() {
    const Geometry g = make_geometry(rows, static_cast<int>(rows.width() / kV), K);
    const std::int64_t walk = std::clamp<std::int64_t>(g.batch * g.tiles / kBlocksWanted, 1, g.tiles);
    const unsigned blocks = grid_of(g.batch * ((g.tiles + walk - 1) / walk), "modulate");
    modulate_forward<Element, kV, K><<<blocks, g.block(), 0, static_cast<cudaStream_t>(args.run.stream)>>>(
        g, walk, args.in, args.y, static_cast<Accumulator<Element>>(p.eps));
  });
  check(cudaGetLastError(), "modulate");
}

void backward(const Modulate& p, const Modulate::Backward& args) {
  const Rows rows = rows_of(p);
  const Slots slots = slots_of(p);
  const int V = vector_elements(p.dtype);
  const auto stream = static_cast<cudaStream_t>(args.run.stream);
  const bool per_token = p.modulation == Modulation::per_token;
  const bool vectorised = vectors_fit(p, args.in) && tokens_vectorisable(args.d_y, V) &&
                          tokens_vectorisable(args.d_x, V) && rows_vectorisable(args.d_scale, V) &&
                          rows_vectorisable(args.d_shift, V);
  const bool weights = args.d_weight.data != nullptr || args.d_bias.data != nullptr;
  const bool modulations = !per_token && (args.d_scale.data != nullptr || args.d_shift.data != nullptr);
  with_variant(p.dtype, vectorised, rows.width() / V, kFew, [&]<typename Element, int kV, int K>() {
    using T = Accumulator<Element>;
    const Geometry g = make_geometry(rows, static_cast<int>(rows.width() / kV), K);
    T* const partial = weights || modulations ? static_cast<T*>(args.run.workspace) : nullptr;
    modulate_backward<Element, kV, K><<<grid_of(slots.count(), "modulate"), g.block(), shared_bytes<T>(g), stream>>>(
        g, slots, per_token, args.in, args.d_y, args.d_x, args.d_scale, args.d_shift, partial, static_cast<T>(p.eps));
    check(cudaGetLastError(), "modulate_backward");
    const std::int64_t tiles = (g.width + kWarp - 1) / kWarp;
    const dim3 block(kWarp, kWarp);
    if (modulations && p.batch > 0)
      batch_gradients<T><<<grid_of(p.batch * tiles, "modulate"), block, 0, stream>>>(
          partial, slots, g.width, tiles, args.in, args.d_scale, args.d_shift);
    if (weights)
      weight_gradients<T><<<static_cast<unsigned>(tiles), block, 0, stream>>>(
          partial, slots, g.width, per_token, args.in.scale, args.d_weight, args.d_bias);
    check(cudaGetLastError(), "modulate_backward");
  });
}

}  // namespace mhla::cuda
