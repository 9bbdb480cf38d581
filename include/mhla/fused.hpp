// The fused operators: what a model does to its tokens right before and after MHLA, each in one pass.
//
//   rotary_features  y = rotate(phi(RMSNorm(x)) + feature_eps)          q and k, before the operator
//   gated_norm       y = RMSNorm(x) weight silu(gate)                   the operator's output
//   modulate         y = (LayerNorm(x) weight + bias) (1 + scale) + shift    the input of a block
//
// A call is a problem (sizes and options) and the arguments of one execution. Arithmetic is in float, in double for
// f64. Tables are in that accumulation type; weights, scales and shifts are in any element type, f64 beside f64 only.
// Gradients of weights are sums of a fixed order, made in a workspace the caller brings.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "mhla/attention.hpp"
#include "mhla/types.hpp"

namespace mhla::fused {

// What an RMSNorm takes the mean over: the D elements of a head, or the H D elements of a token.
enum class NormScope { none, head, channels };

// Which elements make a pair to rotate, of the first R of a head: (j, j + R / 2), or (2j, 2j + 1).
enum class RotaryLayout { half, adjacent };

std::string_view name(NormScope value);
std::string_view name(RotaryLayout value);
NormScope parse_norm_scope(std::string_view text);
RotaryLayout parse_rotary_layout(std::string_view text);

// Rotation by position. The N tokens are a grid of one to three axes in raster order, and a pair rotates with the
// coordinate of one of them: the first pairs[0] pairs with axis 0, the next pairs[1] with axis 1, and so on. Elements
// of a head past the pairs are left alone.
struct Rotary {
  RotaryLayout layout = RotaryLayout::half;
  int axes = 0;  // 0: no rotation
  std::array<std::int64_t, 3> sizes{};
  std::array<std::int64_t, 3> pairs{};

  std::int64_t all_pairs() const { return pairs[0] + pairs[1] + pairs[2]; }
  // Entries of a table: for each axis in turn, [sizes, pairs] row by row.
  std::int64_t table_elements() const { return sizes[0] * pairs[0] + sizes[1] * pairs[1] + sizes[2] * pairs[2]; }
};

// Fills the tables of cosines and sines (host memory, `dtype` f32 or f64): pair j of the P pairs of an axis turns by
// (offset + coordinate) theta^(-j / P). Angles are in double.
void rotary_table(const Rotary& rotary, double theta, std::int64_t offset, DType dtype, void* cos, void* sin);

// A contiguous vector in an element type of its own; null: not given.
template <typename Pointer>
struct BasicVector {
  Pointer data = nullptr;
  DType dtype = DType::f32;
};
using Vector = BasicVector<void*>;
using ConstVector = BasicVector<const void*>;

// q or k of the operator.
struct RotaryFeatures {
  Device device = Device::cpu;
  DType dtype = DType::f32;
  std::int64_t batch = 0, tokens = 0, heads = 0, dim = 0;
  NormScope norm = NormScope::none;
  double norm_eps = 1e-6;
  FeatureMap feature_map = FeatureMap::relu;
  double feature_eps = 0.0;
  Rotary rotary{};

  struct Inputs {
    ConstTensor x;
    ConstVector weight;  // of the norm: [D], or [H D] with NormScope::channels; null: ones
    const void* cos = nullptr;
    const void* sin = nullptr;
    std::int64_t table_stride = 0;  // from one batch row's table to the next; 0: one table for all
  };
  struct Forward {
    Inputs in;
    Tensor y;
    Tensor plain;  // the features before rotation, for a denominator; null: not wanted
    Execution run;
  };
  struct Backward {
    Inputs in;
    ConstTensor d_y, d_plain;  // null: zero
    Tensor d_x;
    Vector d_weight;  // null: not wanted
    Execution run;
  };
};

struct GatedNorm {
  Device device = Device::cpu;
  DType dtype = DType::f32;
  std::int64_t batch = 0, tokens = 0, heads = 0, dim = 0;
  NormScope norm = NormScope::head;  // not none
  double eps = 1e-6;

  struct Inputs {
    ConstTensor x;
    ConstVector weight;  // [D], or [H D] with NormScope::channels; null: ones
    ConstTensor gate;    // null: no gate
  };
  struct Forward {
    Inputs in;
    Tensor y;
    Execution run;
  };
  struct Backward {
    Inputs in;
    ConstTensor d_y;
    Tensor d_x;
    Vector d_weight;  // null: not wanted
    Tensor d_gate;    // where a gate is given
    Execution run;
  };
};

// Scale and shift of `modulate`: one row [C] for each batch row, or one for each token.
enum class Modulation { per_batch, per_token };

// Tokens are [batch, tokens, channels]: tensors with one head, whose head stride is not used.
struct Modulate {
  Device device = Device::cpu;
  DType dtype = DType::f32;
  std::int64_t batch = 0, tokens = 0, channels = 0;
  double eps = 1e-6;
  Modulation modulation = Modulation::per_batch;

  // [batch, channels] or [batch, tokens, channels]; strides in elements, the last axis is contiguous.
  template <typename Pointer>
  struct BasicRows {
    Pointer data = nullptr;
    DType dtype = DType::f32;
    std::int64_t batch_stride = 0;
    std::int64_t token_stride = 0;  // per_token only
  };
  struct Inputs {
    ConstTensor x;
    ConstVector weight, bias;             // [C]; null: ones, zeros
    BasicRows<const void*> scale, shift;  // null: zeros
  };
  struct Forward {
    Inputs in;
    Tensor y;
    Execution run;
  };
  struct Backward {
    Inputs in;
    ConstTensor d_y;
    Tensor d_x;
    Vector d_weight, d_bias;            // null: not wanted
    BasicRows<void*> d_scale, d_shift;  // null: not wanted
    Execution run;
  };
};

// Bytes of workspace a backward call needs; forward calls need none.
std::size_t backward_workspace(const RotaryFeatures& problem);
std::size_t backward_workspace(const GatedNorm& problem);
std::size_t backward_workspace(const Modulate& problem);

// On CUDA these enqueue work on run.stream and return.
void forward(const RotaryFeatures& problem, const RotaryFeatures::Forward& args);
void forward(const GatedNorm& problem, const GatedNorm::Forward& args);
void forward(const Modulate& problem, const Modulate::Forward& args);
void backward(const RotaryFeatures& problem, const RotaryFeatures::Backward& args);
void backward(const GatedNorm& problem, const GatedNorm::Backward& args);
void backward(const Modulate& problem, const Modulate::Backward& args);

}  // namespace mhla::fused
