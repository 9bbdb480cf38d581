// The passes of the dense form. Whole heads on the chip make all gradients at once; otherwise one product of pairs
// makes each of them.
#include "cuda/denominator/denominator.hpp"
#include "cuda/dense/dense.hpp"
#include "cuda/forms/dense_form.hpp"
#include "cuda/mixing/mixing.hpp"
#include "cuda/state/state.hpp"
#include "cuda/support/call_shape.hpp"
#include "cuda/support/tiles.cuh"
#include "cuda/support/workspace.hpp"

namespace mhla::cuda::dense_form {
namespace {

enum class Pass { forward, backward };

// One call of the dense form: its sizes, its inputs and its pieces of the workspace.
template <typename Math>
class DenseCall {
 public:
  using E = typename Math::Element;
  using T = typename Math::Accumulator;

  DenseCall(const Problem& problem, void* workspace, Pass pass)
      : p_(problem), sizes_(call_shape(problem)), workspace_(workspace), shape_(sizes_.shape) {
    if (dense_rows(shape_) > 0x7fffffff)
      throw Error("algorithm is dense for " + std::to_string(dense_rows(shape_)) +
                  " tokens, every block padded to a multiple of 16; on CUDA it must be less than 2^31");
    if (!sizes_.packed.empty()) {
      shape_.packed = table_ = workspace_.take<SequenceRow>(shape_.sequences);
    } else if (wants_order(shape_)) {
      order_ = workspace_.take<int>(dense_rows(shape_));
    }
    if (pass == Pass::forward) return;
    const std::int64_t row_tiles = static_cast<std::int64_t>(shape_.sequences) * shape_.heads * dense_rows(shape_) / 16;
    column_tiles_ = column_tiles<Math>(shape_.key_dim, shape_.value_pad);
    pair_sums_ = workspace_.take<T>(row_tiles * column_tiles_ * shape_.uniform.blocks);
    if (!normalized()) return;
    z_ = workspace_.take<T>(sizes_.entry_rows() * shape_.key_pad);
    mixed_z_ = workspace_.take<T>(sizes_.mixed_rows() * shape_.key_pad);
    denominator_ = take_scalars<T>(workspace_, sizes_);
    g_ = take_scalars<T>(workspace_, sizes_);
    dU_ = take_values<E>(workspace_, sizes_);
  }

  std::size_t workspace_bytes() const { return workspace_.used(); }

  void run(const ForwardArgs& args) {
    bind(args.in, args.run);
    dense_forward<Math>({.shape = shape_,
                         .q = q_,
                         .k = k_,
                         .v = v_,
                         .o = token_tensor<E>(args.o, shape_.value_dim),
                         .normalize = normalized()},
                        order_, stream_);
  }

  void run(const BackwardArgs& args) {
    bind(args.in, args.run);
    if (!dense_backward<E>({.shape = shape_,
                            .q = q_,
                            .k = k_,
                            .v = v_,
                            .o = token_tensor<const E>(args.o, shape_.value_dim),
                            .d_o = token_tensor<const E>(args.d_o, shape_.value_dim),
                            .d_q = token_tensor<E>(args.d_q, shape_.key_dim),
                            .d_k = token_tensor<E>(args.d_k, shape_.key_dim),
                            .d_v = token_tensor<E>(args.d_v, shape_.value_dim),
                            .normalize = normalized(),
                            .pair_sums = args.d_mixing != nullptr ? pair_sums_ : nullptr},
                           stream_))
      differentiate_tokens(args);
    differentiate_mixing(args);
  }

 private:
  bool normalized() const { return p_.options.normalizer != Normalizer::none; }

  void bind(const Inputs& in, const Execution& run) {
    stream_ = static_cast<cudaStream_t>(run.stream);
    shape_.mixing = in.mixing;
    q_ = token_tensor<const E>(in.q, p_.key_dim);
    k_ = token_tensor<const E>(in.k, p_.key_dim);
    v_ = token_tensor<const E>(in.v, p_.value_dim);
    if (table_ != nullptr) upload(sizes_.packed, table_, stream_);
  }

  void differentiate_tokens(const BackwardArgs& args) {
    if (order_ != nullptr) write_order(shape_, order_, stream_);
    TokenTensor<const E> dU = token_tensor<const E>(args.d_o, shape_.value_dim);
    if (normalized()) dU = differentiate_normalizer(args);
    DenseArgs<E> d_q{.shape = shape_,
                     .order = order_,
                     .x = dU,
                     .y = v_,
                     .rest = k_,
                     .rest_feature = shape_.feature,
                     .g = as_const(g_),
                     .factor = shape_.scale,
                     .out = token_tensor<E>(args.d_q, shape_.key_dim),
                     .raw = q_,
                     .raw_feature = shape_.feature,
                     .pair_sums = args.d_mixing != nullptr ? pair_sums_ : nullptr};
    multiply_pairs<Math>(d_q, stream_);
    multiply_pairs<Math>({.shape = shape_,
                          .order = order_,
                          .of_queries = false,
                          .x = k_,
                          .y = q_,
                          .rest = dU,
                          .x_feature = shape_.feature,
                          .y_feature = shape_.feature,
                          .factor = shape_.scale,
                          .out = token_tensor<E>(args.d_v, shape_.value_dim)},
                         stream_);
    multiply_pairs<Math>({.shape = shape_,
                          .order = order_,
                          .of_queries = false,
                          .x = v_,
                          .y = dU,
                          .rest = q_,
                          .rest_feature = shape_.feature,
                          .g = as_const(g_),
                          .factor = shape_.scale,
                          .out = token_tensor<E>(args.d_k, shape_.key_dim),
                          .raw = k_,
                          .raw_feature = shape_.feature},
                         stream_);
  }

  void differentiate_mixing(const BackwardArgs& args) {
    const int row_tiles = (shape_.capacity + 15) / 16;  // of a block
    if (args.d_mixing != nullptr)
      sum_pairs<T>(shape_, pair_sums_, row_tiles * column_tiles_, static_cast<T*>(args.d_mixing), stream_);
  }

  TokenTensor<const E> differentiate_normalizer(const BackwardArgs& args) {
    sum_features<E>({.shape = shape_, .x = k_, .sums = z_}, stream_);
    mix_sums<E, false>({.shape = shape_, .sums_from = z_, .sums_to = mixed_z_}, stream_);
    const bool on_the_way = p_.options.masking != Masking::token_causal;
    if (!on_the_way)
      denominators<E>({.shape = shape_, .q = q_, .k = k_, .sums = mixed_z_, .denominator = denominator_}, stream_);
    normalized_gradient<E>({.shape = shape_,
                            .q = q_,
                            .z = on_the_way ? mixed_z_ : nullptr,
                            .o = token_tensor<const E>(args.o, shape_.value_dim),
                            .d_o = token_tensor<const E>(args.d_o, shape_.value_dim),
                            .denominator = as_const(denominator_),
                            .dU = dU_,
                            .g = g_},
                           stream_);
    return as_const(dU_);
  }

  const Problem& p_;
  CallShape sizes_;
  Workspace workspace_;
  Shape shape_;
  cudaStream_t stream_ = nullptr;
  SequenceRow* table_ = nullptr;
  int* order_ = nullptr;
  T* pair_sums_ = nullptr;
  int column_tiles_ = 0;
  T* z_ = nullptr;
  T* mixed_z_ = nullptr;
  TokenScalars<T> denominator_{}, g_{};
  TokenTensor<E> dU_{};
  TokenTensor<const E> q_, k_, v_;
};

}  // namespace

std::size_t forward_workspace(const Problem& problem) {
  return with_math(
      problem, [&]<typename Math>(Math) { return DenseCall<Math>(problem, nullptr, Pass::forward).workspace_bytes(); });
}
std::size_t backward_workspace(const Problem& problem) {
  return with_math(problem, [&]<typename Math>(Math) {
    return DenseCall<Math>(problem, nullptr, Pass::backward).workspace_bytes();
  });
}
void forward(const Problem& problem, const ForwardArgs& args) {
  with_math(problem,
            [&]<typename Math>(Math) { DenseCall<Math>(problem, args.run.workspace, Pass::forward).run(args); });
}
void backward(const Problem& problem, const BackwardArgs& args) {
  with_math(problem,
            [&]<typename Math>(Math) { DenseCall<Math>(problem, args.run.workspace, Pass::backward).run(args); });
}

}  // namespace mhla::cuda::dense_form
