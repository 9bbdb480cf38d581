// What a transformer block does between its matrix products, each in one pass over memory: CUDA only, for elsewhere
// torch's own kernels do as well. Everything is enqueued on `stream` of the current device; tensors are contiguous
// unless they have a stride. Sums over tokens are made in a fixed order, in partial sums the caller brings.
//
// Bytes, in units of one bf16 tensor [rows, channels], with the stream x in float32:
//   add_norm       forward x 2, branch 1, sum 2, y 1; backward d_y 1, d_sum 2, sum 2, d_x 2, d_branch 1
//   add_modulate   forward x 2, branch 1, sum 2, y 1; backward d_y 1, d_sum 2, sum 2, branch 1, d_x 2, d_branch 1
//   qkv_features   forward q 1, k 1, both written 2; backward q, k 2, d_q, d_k, d_v 3, d_qkv 3
//   bias_gelu      forward 2; backward 3
//   swiglu         forward 3; backward 5
//   cross_entropy  the logits read twice and written once
//   depthwise      forward 2, with `base` 3; backward of tokens the same; backward of the filter 2
#pragma once

#include <cstdint>

#include "mhla/fused.hpp"

namespace mhla::cuda::layers {

using fused::ConstVector;
using fused::Vector;

// sum = x + factor (branch + branch_bias), y = LayerNorm(sum) weight + bias; with `rms` y = RMSNorm(sum) weight + bias.
struct AddNorm {
  std::int64_t rows = 0, channels = 0;
  std::int64_t rows_per_factor = 1;
  bool rms = false;
  DType stream_dtype = DType::f32;  // of x and sum: f32, or that of y
  DType dtype = DType::bf16;        // of branch and y; not f64
  double eps = 1e-6;

  static constexpr std::int64_t kMostChannels = 1152;
  // Channels come in multiples of 4, and all pointers are aligned to 16 bytes.
  bool supported() const { return channels % 4 == 0 && channels <= kMostChannels; }
  std::int64_t partial_elements() const;  // of the backward pass, floats

  struct Forward {
    const void* x = nullptr;
    const void* branch = nullptr;   // null: sum is x, and not written
    ConstVector branch_bias{};      // null: zero
    const float* factor = nullptr;  // one for rows_per_factor rows; null: 1
    ConstVector weight{}, bias{};
    void* sum = nullptr;
    void* y = nullptr;
    float* statistics = nullptr;  // [rows, 2]: mean (with `rms` 0) and 1 / deviation, for the backward pass
  };
  struct Backward {
    const void* sum = nullptr;
    const float* statistics = nullptr;
    const float* factor = nullptr;
    ConstVector weight{};
    const void* d_y = nullptr;
    const void* d_sum = nullptr;  // null: zero
    void* d_x = nullptr;
    void* d_branch = nullptr;                      // null: there was none
    Vector d_weight{}, d_bias{}, d_branch_bias{};  // null: not wanted
    float* partial = nullptr;
  };
};
void forward(const AddNorm& p, const AddNorm::Forward& args, void* stream);
void backward(const AddNorm& p, const AddNorm::Backward& args, void* stream);

// sum = x + gate (branch + branch_bias), y = LayerNorm(sum) (1 + scale) + shift, with gate, scale and shift of the
// batch row.
struct AddModulate {
  std::int64_t batch = 0, tokens = 0, channels = 0;
  DType stream_dtype = DType::f32;  // of x and sum: f32, or that of y
  DType dtype = DType::bf16;        // of branch and y; not f64
  double eps = 1e-6;

  bool supported() const { return channels % 4 == 0 && channels <= AddNorm::kMostChannels; }
  std::int64_t partial_elements() const;

  // [batch, channels]; aligned for vectors of 4 elements.
  struct Part {
    const void* data = nullptr;  // null: zero
    DType dtype = DType::f32;
    std::int64_t stride = 0;  // elements from one batch row to the next
  };
  struct Forward {
    const void* x = nullptr;
    const void* branch = nullptr;  // null: sum is x, and not written
    ConstVector branch_bias{};     // null: zero
    Part gate{}, scale{}, shift{};
    void* sum = nullptr;
    void* y = nullptr;            // null: only the sum is wanted
    float* statistics = nullptr;  // [rows, 2]: mean and 1 / deviation, for the backward pass
  };
  struct Backward {
    const void* sum = nullptr;
    const float* statistics = nullptr;
    const void* branch = nullptr;  // null: there was none
    ConstVector branch_bias{};
    Part gate{}, scale{};
    const void* d_y = nullptr;    // null: there was none
    const void* d_sum = nullptr;  // null: zero
    void* d_x = nullptr;          // null: not wanted, since it is d_sum
    void* d_branch = nullptr;
    Vector d_gate{}, d_scale{}, d_shift{};  // [batch, channels]; null: not wanted
    Vector d_branch_bias{};                 // null: not wanted
    float* partial = nullptr;
  };
};
void forward(const AddModulate& p, const AddModulate::Forward& args, void* stream);
void backward(const AddModulate& p, const AddModulate::Backward& args, void* stream);

// q = phi(RMSNorm(q) q_weight) + feature_eps and the same for k, out of rows that hold q, k and v side by side.
struct QkvFeatures {
  std::int64_t rows = 0, channels = 0;  // of each of the three
  DType dtype = DType::bf16;            // not f64
  bool norm = true;                     // without it there are no weights and no statistics
  double norm_eps = 1e-6;
  FeatureMap feature_map = FeatureMap::relu;
  double feature_eps = 0.0;

  bool supported() const { return channels % 4 == 0 && channels <= AddNorm::kMostChannels; }
  std::int64_t partial_elements() const;

  struct Forward {
    const void* qkv = nullptr;
    ConstVector q_weight{}, k_weight{};
    void *q = nullptr, *k = nullptr;
    float* statistics = nullptr;  // [rows, 2]: 1 / rms of q and of k
  };
  struct Backward {
    const void* qkv = nullptr;
    const float* statistics = nullptr;
    ConstVector q_weight{}, k_weight{};
    const void *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
    const void* d_v_more = nullptr;  // added to d_v; null: zero
    void* d_qkv = nullptr;
    Vector d_q_weight{}, d_k_weight{};
    float* partial = nullptr;
  };
};
void forward(const QkvFeatures& p, const QkvFeatures::Forward& args, void* stream);
void backward(const QkvFeatures& p, const QkvFeatures::Backward& args, void* stream);

// y = gelu(x + bias), the exact one or its approximation by tanh.
struct BiasGelu {
  std::int64_t rows = 0, channels = 0;
  bool tanh = false;
  DType dtype = DType::bf16;  // not f64

  bool supported() const { return channels % 8 == 0; }
  std::int64_t partial_elements() const;

  struct Forward {
    const void* x = nullptr;
    ConstVector bias{};
    void* y = nullptr;
  };
  struct Backward {
    const void* x = nullptr;
    ConstVector bias{};
    const void* d_y = nullptr;
    void* d_x = nullptr;
    Vector d_bias{};
    float* partial = nullptr;
  };
};
void forward(const BiasGelu& p, const BiasGelu::Forward& args, void* stream);
void backward(const BiasGelu& p, const BiasGelu::Backward& args, void* stream);

// y = silu(a) b.
struct SwiGlu {
  std::int64_t elements = 0;
  DType dtype = DType::bf16;  // not f64

  bool supported() const { return elements % 8 == 0; }

  struct Forward {
    const void *a = nullptr, *b = nullptr;
    void* y = nullptr;
  };
  struct Backward {
    const void *a = nullptr, *b = nullptr, *d_y = nullptr;
    void *d_a = nullptr, *d_b = nullptr;
  };
};
void forward(const SwiGlu& p, const SwiGlu::Forward& args, void* stream);
void backward(const SwiGlu& p, const SwiGlu::Backward& args, void* stream);

// The cross-entropy of rows of logits and, in their place, its gradient:
// loss = log(sum(exp(x))) - x[label], d_x = share (softmax(x) - onehot(label)). A row whose label is `ignored` has loss
// 0 and gradient 0.
struct CrossEntropy {
  std::int64_t rows = 0, words = 0;
  std::int64_t ignored = -100;
  DType dtype = DType::bf16;  // of the logits; not f64

  bool supported() const { return words > 0 && words % 8 == 0; }

  struct Args {
    void* logits = nullptr;  // [rows, words], aligned to 16 bytes
    const std::int64_t* labels = nullptr;
    const float* share = nullptr;  // one for all rows; null: the logits stay
    float* loss = nullptr;         // [rows]
  };
};
void run(const CrossEntropy& p, const CrossEntropy::Args& args, void* stream);

// y = base + bias + the convolution of every channel with its own filter of side x side, zeros beyond the border.
// Tokens are [batch, height, width, channels].
struct Depthwise {
  std::int64_t batch = 0, height = 0, width = 0, channels = 0;
  int side = 5;
  DType dtype = DType::bf16;  // not f64

  bool supported() const { return (side == 3 || side == 5) && channels % 8 == 0; }
  std::int64_t partial_elements() const;

  // Elements from one token to the next, a multiple of 8, from an address aligned to 16 bytes; batch rows follow each
  // other without a gap.
  struct Tokens {
    const void* data = nullptr;
    std::int64_t stride = 0;
  };
  struct Forward {
    Tokens x{};
    ConstVector weight{}, bias{};  // [channels, side, side]; [channels]
    const void* base = nullptr;    // contiguous; null: zero
    void* y = nullptr;
    bool transposed = false;  // the derivative with respect to the tokens: the filter is turned by half a turn
  };
  struct FilterGradient {
    Tokens x{};
    const void* d_y = nullptr;
    Vector d_weight{}, d_bias{};
    float* partial = nullptr;
  };
};
void forward(const Depthwise& p, const Depthwise::Forward& args, void* stream);
void filter_gradient(const Depthwise& p, const Depthwise::FilterGradient& args, void* stream);

}  // namespace mhla::cuda::layers
