// y = xhat weight silu(gate), with xhat = x / rms(x). The derivation of the backward pass is in cpu/fused.
//
// Bytes: forward reads x and gate and writes y; backward reads x, gate, d_y and writes d_x, d_gate.
#include "cuda/fused/fused.hpp"
#include "cuda/fused/weight_gradient.cuh"

namespace mhla::cuda {
namespace {

using namespace rows;
using fused::GatedNorm;

constexpr int kFew = 32;  // chunks of a row that get a thread each

template <typename T>
__device__ __forceinline__ T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

template <typename Element, int V, int K>
__global__ void __launch_bounds__(kMostThreads<K>)
    gated_norm_forward(Geometry g, GatedNorm::Inputs in, Tensor y, Accumulator<Element> eps) {
  using T = Accumulator<Element>;
  const int lane = lane_of(g);
  std::int64_t batch, tile;
  divide(blockIdx.x, g.tiles, batch, tile);
  const ThreadRow row = row_of_thread(g, batch, tile);
  const auto* const x_row = static_cast<const Element*>(in.x.data) + offset_of(in.x, row);
  const auto* const gate_row = static_cast<const Element*>(in.gate.data) + offset_of(in.gate, row);
  auto* const y_row = static_cast<Element*>(y.data) + offset_of(y, row);

  T x[kHeld<K>][V], gate[kHeld<K>][V], squares[1] = {T(0)};
  const auto read = [&](int k, const VectorChunk& at) {
    load<V>(x_row + at.in(in.x), x[k]);
    if (in.gate.data != nullptr) load<V>(gate_row + at.in(in.gate), gate[k]);
  };
  if (row.active)
    for_each_chunk<K>(g, lane, [&](int k, int chunk) {
      read(k, vector_chunk<V>(g, chunk));
#pragma unroll
      for (int i = 0; i < V; ++i) squares[0] += x[k][i] * x[k][i];
    });
  row_sum(g, squares);
  const T inverse_rms = rsqrt(squares[0] / static_cast<T>(g.width) + eps);
  if (!row.active) return;
  for_each_chunk<K>(g, lane, [&](int k, int chunk) {
    const VectorChunk at = vector_chunk<V>(g, chunk);
    T weight[V];
    load_any<V>(in.weight.data, in.weight.dtype, at.column, T(1), weight);
    if constexpr (K == 0) read(k, at);
#pragma unroll
    for (int i = 0; i < V; ++i) x[k][i] *= inverse_rms * weight[i];
    if (in.gate.data != nullptr) {
#pragma unroll
      for (int i = 0; i < V; ++i) x[k][i] *= gate[k][i] * sigmoid(gate[k][i]);
    }
    store<V>(y_row + at.in(y), x[k]);
  });
}

template <typename Element, int V, int K>
__global__ void __launch_bounds__(kMostThreads<K>)
    gated_norm_backward(Geometry g, Slots slots, GatedNorm::Inputs in, ConstTensor d_y, Tensor d_x, Tensor d_gate,
                        Accumulator<Element>* partial, Accumulator<Element> eps) {
  using T = Accumulator<Element>;
  const int lane = lane_of(g);
  T* const slot = partial != nullptr ? partial + blockIdx.x * g.width : nullptr;
  T d_weight[kHeld<K>][V] = {};
  if constexpr (K == 0) {
    if (slot != nullptr)
      for_each_chunk<K>(g, lane, [&](int, int chunk) {
        for (int i = 0; i < V; ++i) slot[chunk * V + i] = T(0);
      });
  }
  for (std::int64_t batch = blockIdx.x / slots.rows; batch < g.batch; batch += slots.batch)
    for (std::int64_t tile = blockIdx.x % slots.rows; tile < g.tiles; tile += slots.rows) {
      const ThreadRow row = row_of_thread(g, batch, tile);
      const auto* const x_row = static_cast<const Element*>(in.x.data) + offset_of(in.x, row);
      const auto* const gate_row = static_cast<const Element*>(in.gate.data) + offset_of(in.gate, row);
      const auto* const d_y_row = static_cast<const Element*>(d_y.data) + offset_of(d_y, row);
      auto* const d_gate_row = static_cast<Element*>(d_gate.data) + offset_of(d_gate, row);
      auto* const d_x_row = static_cast<Element*>(d_x.data) + offset_of(d_x, row);

      T xhat[kHeld<K>][V], d[kHeld<K>][V], gate[kHeld<K>][V];
      const auto read = [&](int k, const VectorChunk& at) {
        load<V>(x_row + at.in(in.x), xhat[k]);
        load<V>(d_y_row + at.in(d_y), d[k]);
        if (in.gate.data != nullptr) load<V>(gate_row + at.in(in.gate), gate[k]);
      };
      T squares[1] = {T(0)};
      if (row.active)
        for_each_chunk<K>(g, lane, [&](int k, int chunk) {
          read(k, vector_chunk<V>(g, chunk));
#pragma unroll
          for (int i = 0; i < V; ++i) squares[0] += xhat[k][i] * xhat[k][i];
        });
      row_sum(g, squares);
      const T inverse_rms = rsqrt(squares[0] / static_cast<T>(g.width) + eps);

      // From x to xhat and from d_y to d_xhat; on the way the gradients of gate and weight, when `first`.
      const auto differentiate = [&](int k, const VectorChunk& at, bool first) {
        T weight[V];
        load_any<V>(in.weight.data, in.weight.dtype, at.column, T(1), weight);
#pragma unroll
        for (int i = 0; i < V; ++i) xhat[k][i] *= inverse_rms;
        if (in.gate.data != nullptr) {
#pragma unroll
          for (int i = 0; i < V; ++i) {
            const T s = sigmoid(gate[k][i]), silu = gate[k][i] * s;
            gate[k][i] = d[k][i] * xhat[k][i] * weight[i] * (s + silu * (T(1) - s));
            d[k][i] *= silu;
          }
          if (first) store<V>(d_gate_row + at.in(d_gate), gate[k]);
        }
#pragma unroll
        for (int i = 0; i < V; ++i) {
          if constexpr (K == 0) {
            if (first && slot != nullptr) slot[at.column + i] += d[k][i] * xhat[k][i];
          } else {
            d_weight[k][i] += d[k][i] * xhat[k][i];
          }
          d[k][i] *= weight[i];
        }
      };
      T mean[1] = {T(0)};
      if (row.active)
        for_each_chunk<K>(g, lane, [&](int k, int chunk) {
          const VectorChunk at = vector_chunk<V>(g, chunk);
          if constexpr (K == 0) read(k, at);
          differentiate(k, at, true);
#pragma unroll
          for (int i = 0; i < V; ++i) mean[0] += d[k][i] * xhat[k][i];
        });
      row_sum(g, mean);
      mean[0] /= static_cast<T>(g.width);
      if (row.active)
        for_each_chunk<K>(g, lane, [&](int k, int chunk) {
          const VectorChunk at = vector_chunk<V>(g, chunk);
          if constexpr (K == 0) read(k, at), differentiate(k, at, false);
#pragma unroll
          for (int i = 0; i < V; ++i) d[k][i] = inverse_rms * (d[k][i] - xhat[k][i] * mean[0]);
          store<V>(d_x_row + at.in(d_x), d[k]);
        });
    }
  if constexpr (K > 0) {
    extern __shared__ double shared[];
    if (slot == nullptr) return;
    write_slot(g, d_weight, slot, reinterpret_cast<T*>(shared), [&](int k, int i) {
      const int chunk = lane + k * g.threads;
      return chunk < g.chunks ? chunk * V + i : -1;
    });
  }
}

bool vectors_fit(const GatedNorm& p, const GatedNorm::Inputs& in) {
  const int V = vector_elements(p.dtype);
  return p.dim % V == 0 && vectorisable(in.x, V) && vectorisable(in.gate, V) && vectorisable(in.weight);
}

}  // namespace

void forward(const GatedNorm& p, const GatedNorm::Forward& args) {
  const Rows rows = rows_of(p);
  const int V = vector_elements(p.dtype);
  const bool vectorised = vectors_fit(p, args.in) && vectorisable(args.y, V);
  with_variant(p.dtype, vectorised, rows.width() / V, kFew, [&]<typename Element, int kV, int K>() {
    const Geometry g = make_geometry(rows, static_cast<int>(rows.width() / kV), K);
    const unsigned blocks = grid_of(g.batch * g.tiles, "gated_norm");
    gated_norm_forward<Element, kV, K><<<blocks, g.block(), 0, static_cast<cudaStream_t>(args.run.stream)>>>(
        g, args.in, args.y, static_cast<Accumulator<Element>>(p.eps));
  });
  check(cudaGetLastError(), "gated_norm");
}

void backward(const GatedNorm& p, const GatedNorm::Backward& args) {
  const Rows rows = rows_of(p);
  const Slots slots = slots_of(p);
  const int V = vector_elements(p.dtype);
  const auto stream = static_cast<cudaStream_t>(args.run.stream);
  const bool vectorised =
      vectors_fit(p, args.in) && vectorisable(args.d_y, V) && vectorisable(args.d_x, V) && vectorisable(args.d_gate, V);
  with_variant(p.dtype, vectorised, rows.width() / V, kFew, [&]<typename Element, int kV, int K>() {
    using T = Accumulator<Element>;
    const Geometry g = make_geometry(rows, static_cast<int>(rows.width() / kV), K);
    T* const partial = args.d_weight.data != nullptr ? static_cast<T*>(args.run.workspace) : nullptr;
    gated_norm_backward<Element, kV, K>
        <<<grid_of(slots.count(), "gated_norm"), g.block(), shared_bytes<T>(g), stream>>>(
            g, slots, args.in, args.d_y, args.d_x, args.d_gate, partial, static_cast<T>(p.eps));
    check(cudaGetLastError(), "gated_norm_backward");
    if (partial != nullptr) launch_add_slots<T>(partial, slots.count(), rows.width(), args.d_weight, stream);
  });
}

}  // namespace mhla::cuda
