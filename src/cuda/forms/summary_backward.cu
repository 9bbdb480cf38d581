// The backward pass of the summary form: through the readout to dS~, through the mixing to dS, and from both to the
// tokens and the mixing matrix; or in one launch where a head stays on the chip.
#include "cuda/forms/summary_form.hpp"
#include "cuda/forms/summary_gradient_memory.hpp"
#include "cuda/readout/readout.hpp"

namespace mhla::cuda::summary_form {
namespace {

template <typename Math>
class Backward {
 public:
  using E = typename Math::Element;
  using T = typename Math::Accumulator;

  // What was kept is only read.
  Backward(const Problem& problem, void* workspace, const void* kept)
      : c_(problem, workspace, const_cast<void*>(kept)), m_(c_) {}
  std::size_t workspace_bytes() const { return c_.workspace.used(); }

  void run(const BackwardArgs& args) {
    c_.bind(args.in, args.run);
    if (run_on_chip(args)) return;
    if (args.kept == nullptr && !summarize_keys_on_chip()) c_.summarize_keys({});
    TokenTensor<const E> dU = token_tensor<const E>(args.d_o, c_.shape.value_dim);
    if (c_.normalized()) dU = differentiate_normalizer(args);
    if (!differentiate_summaries_on_chip(args, dU)) differentiate_summaries(args, dU);
    if (args.d_mixing == nullptr) m_.diagonal = nullptr;
    if (!differentiate_causal_tokens(args, dU)) differentiate_tokens(args, dU);
    if (args.d_mixing != nullptr) differentiate_mixing(args);
  }

 private:
  bool run_on_chip(const BackwardArgs& args) {
    const Shape& shape = c_.shape;
    if (!c_.stays_on_chip() || !resident_backward<E>({.shape = shape,
                                                      .q = c_.q,
                                                      .k = c_.k,
                                                      .v = c_.v,
                                                      .o = token_tensor<const E>(args.o, shape.value_dim),
                                                      .d_o = token_tensor<const E>(args.d_o, shape.value_dim),
                                                      .d_q = token_tensor<E>(args.d_q, shape.key_dim),
                                                      .d_k = token_tensor<E>(args.d_k, shape.key_dim),
                                                      .d_v = token_tensor<E>(args.d_v, shape.value_dim),
                                                      .store_factor = store_factor<E>(shape),
                                                      .normalize = c_.normalized(),
                                                      .scratch = m_.scratch,
                                                      .pairs = args.d_mixing != nullptr ? m_.pairs : nullptr},
                                                     c_.stream))
      return false;
    if (args.d_mixing != nullptr) sum_pairs<T>(shape, m_.pairs, 1, static_cast<T*>(args.d_mixing), c_.stream);
    return true;
  }

  // S and S~ in one pass over the blocks.
  bool summarize_keys_on_chip() {
    return c_.causal_stays_on_chip() && causal_heads<E>({.shape = c_.shape,
                                                         .y = c_.k,
                                                         .rest = c_.v,
                                                         .summary_factor = store_factor<E>(c_.shape),
                                                         .summaries = c_.S,
                                                         .mixtures = c_.mixed},
                                                        c_.stream);
  }

  // The denominator is of the same q and k as the numerator, and its gradients come with theirs.
  bool joint() const { return c_.normalized() && !c_.separate(); }
  // What multiplies q's own vector in the denominator: d den, or d y of the authors' normaliser.
  TokenScalars<const T> coefficient() const { return as_const(c_.authors() ? m_.dy : m_.g); }

  TokenTensor<const E> differentiate_normalizer(const BackwardArgs& args) {
    const bool on_the_way = c_.paper() && !c_.separate() && !c_.token_causal();
    if (!on_the_way) c_.find_denominators(m_.denominator);
    normalized_gradient<E>({.shape = c_.shape,
                            .q = c_.q,
                            .z = on_the_way ? c_.mixed_z : nullptr,
                            .o = token_tensor<const E>(args.o, c_.shape.value_dim),
                            .d_o = token_tensor<const E>(args.d_o, c_.shape.value_dim),
                            .denominator = as_const(m_.denominator),
                            .dU = m_.dU,
                            .g = m_.g},
                           c_.stream);
    if (c_.authors()) {
      authors_gradient<E>({.shape = c_.shape,
                           .slots = c_.slots,
                           .g_slots = m_.g_slots,
                           .g = as_const(m_.g),
                           .dy = m_.dy,
                           .pairs = args.d_mixing != nullptr ? m_.pairs : nullptr},
                          c_.stream);
    }
    return as_const(m_.dU);
  }

  // dS~ and dS in one pass, from the last block to the first.
  bool differentiate_summaries_on_chip(const BackwardArgs& args, const TokenTensor<const E>& dU) {
    const Shape& shape = c_.shape;
    if (!c_.causal_stays_on_chip()) return false;
    if (args.d_final.S == nullptr && causal_heads<E>({.shape = shape,
                                                      .reversed = true,
                                                      .y = c_.q,
                                                      .rest = dU,
                                                      .summary_factor = shape.scale,
                                                      .summaries = m_.d_mixed,
                                                      .mixtures = m_.dS},
                                                     c_.stream))
      return true;
    write_weights(shape, c_.weights, c_.stream);
    return false;
  }

  // dS~ from queries and dU, then dS through the mixing; likewise dz~ and dz.
  void differentiate_summaries(const BackwardArgs& args, const TokenTensor<const E>& dU) {
    const Shape& shape = c_.shape;
    summarize<Math>({.shape = shape,
                     .left = c_.q,
                     .right = dU,
                     .feature = shape.feature,
                     .of_queries = true,
                     .factor = shape.scale,
                     .store = m_.d_mixed,
                     .sums = joint() ? m_.d_mixed_z : nullptr,
                     .weights = joint() ? coefficient() : TokenScalars<const T>{},
                     .sums_factor = shape.scale},
                    c_.stream);
    if (c_.separate()) {
      sum_features<E>({.shape = shape,
                       .x = c_.q_den,
                       .of_queries = true,
                       .weights = coefficient(),
                       .factor = shape.scale,
                       .sums = m_.d_mixed_z},
                      c_.stream);
    }
    mix_adjoint<Math>({.shape = shape,
                       .weights = c_.weights,
                       .from = m_.d_mixed,
                       .to = m_.dS,
                       .sums_from = m_.d_mixed_z,
                       .sums_to = c_.paper() ? m_.dz : nullptr,
                       .d_final_S = static_cast<const T*>(args.d_final.S),
                       .d_final_z = static_cast<const T*>(args.d_final.z),
                       .d_initial_S = static_cast<T*>(args.d_initial.S),
                       .d_initial_z = static_cast<T*>(args.d_initial.z)},
                      c_.stream);
    if (c_.authors()) {
      gather_own_sums<E>(
          {.shape = shape, .from = m_.d_mixed_z, .d_final_z = static_cast<const T*>(args.d_final.z), .to = m_.dz},
          c_.stream);
    }
  }

  // All gradients of tokens in one pass.
  bool differentiate_causal_tokens(const BackwardArgs& args, const TokenTensor<const E>& dU) {
    const Shape& shape = c_.shape;
    return !c_.normalized() && causal_gradients<E>({.shape = shape,
                                                    .q = c_.q,
                                                    .k = c_.k,
                                                    .v = c_.v,
                                                    .d_o = dU,
                                                    .mixed = c_.mixed,
                                                    .dS = m_.dS,
                                                    .query_factor = shape.scale / store_factor<E>(shape),
                                                    .d_q = token_tensor<E>(args.d_q, shape.key_dim),
                                                    .d_k = token_tensor<E>(args.d_k, shape.key_dim),
                                                    .d_v = token_tensor<E>(args.d_v, shape.value_dim),
                                                    .diagonal = m_.diagonal,
                                                    .diagonal_stride = m_.diagonal_parts},
                                                   c_.stream);
  }

  void differentiate_tokens(const BackwardArgs& args, const TokenTensor<const E>& dU) {
    read_out<Math>(query_readout(args, dU), c_.stream);
    read_out_keys<Math>(key_readout(args, dU), value_readout(args, dU), c_.stream);
    if (!c_.separate()) return;
    const Shape& shape = c_.shape;
    separate_gradient<E>({.shape = shape,
                          .q = c_.q_den,
                          .k = c_.k_den,
                          .g = coefficient(),
                          .q_vector = c_.authors() ? c_.z : c_.mixed_z,
                          .own = c_.authors(),
                          .dz = m_.dz,
                          .d_q = token_tensor<E>(args.d_q_den, shape.key_dim),
                          .d_k = token_tensor<E>(args.d_k_den, shape.key_dim),
                          .diagonal = m_.diagonal,
                          .diagonal_parts = m_.diagonal_parts,
                          .diagonal_part = m_.diagonal_parts - 1},
                         c_.stream);
  }

  ReadoutArgs<E> query_readout(const BackwardArgs& args, const TokenTensor<const E>& dU) {
    const Shape& shape = c_.shape;
    const T* const own_vector = c_.authors() ? own_z() : c_.mixed_z;
    ReadoutArgs<E> d_q{.shape = shape,
                       .x = dU,
                       .W = c_.mixed,
                       .transposed = true,
                       .factor = shape.scale / store_factor<E>(shape),
                       .out = token_tensor<E>(args.d_q, shape.key_dim),
                       .pair_factor = store_factor<E>(shape),
                       .vector = joint() ? own_vector : nullptr,
                       .coefficient = joint() ? coefficient() : TokenScalars<const T>{},
                       .rank_one_factor = shape.scale,
                       .raw = c_.q,
                       .raw_feature = shape.feature};
    if (c_.token_causal()) {
      d_q.y = c_.v;
      d_q.rest = c_.k;
      d_q.rest_feature = shape.feature;
      if (joint()) d_q.g = as_const(m_.g);
      d_q.diagonal = m_.diagonal;
      d_q.diagonal_stride = m_.diagonal_parts;
    }
    return d_q;
  }
  ReadoutArgs<E> value_readout(const BackwardArgs& args, const TokenTensor<const E>& dU) {
    const Shape& shape = c_.shape;
    ReadoutArgs<E> d_v{.shape = shape,
                       .of_queries = false,
                       .x = c_.k,
                       .x_feature = shape.feature,
                       .W = m_.dS,
                       .out = token_tensor<E>(args.d_v, shape.value_dim),
                       .pair_factor = shape.scale};
    if (c_.token_causal()) {
      d_v.y = c_.q;
      d_v.y_feature = shape.feature;
      d_v.rest = dU;
    }
    return d_v;
  }
  ReadoutArgs<E> key_readout(const BackwardArgs& args, const TokenTensor<const E>& dU) {
    const Shape& shape = c_.shape;
    ReadoutArgs<E> d_k{.shape = shape,
                       .of_queries = false,
                       .x = c_.v,
                       .W = m_.dS,
                       .transposed = true,
                       .out = token_tensor<E>(args.d_k, shape.key_dim),
                       .pair_factor = shape.scale,
                       .vector = joint() ? m_.dz : nullptr,
                       .raw = c_.k,
                       .raw_feature = shape.feature};
    if (c_.token_causal()) {
      d_k.y = dU;
      d_k.rest = c_.q;
      d_k.rest_feature = shape.feature;
      if (joint()) d_k.g = as_const(m_.g);
    }
    return d_k;
  }

  // z_b of every query row, where d_q expects a vector per row of the S~ store.
  const T* own_z() {
    spread_own_sums<E>({.shape = c_.shape, .from = c_.z, .to = m_.d_mixed_z}, c_.stream);
    return m_.d_mixed_z;
  }

  void differentiate_mixing(const BackwardArgs& args) {
    mixing_gradient<Math>({.shape = c_.shape,
                           .S = c_.S,
                           .d_mixed = m_.d_mixed,
                           .factor = 1 / store_factor<E>(c_.shape),
                           .z = c_.paper() ? c_.z : nullptr,
                           .d_mixed_z = m_.d_mixed_z,
                           .diagonal = m_.diagonal,
                           .diagonal_parts = m_.diagonal_parts,
                           .pairs = c_.authors() ? m_.pairs : nullptr,
                           .partial = m_.mixing_partial,
                           .d_mixing = static_cast<T*>(args.d_mixing)},
                          c_.shape.uniform.blocks, c_.stream);
  }

  SummaryCall<Math> c_;
  GradientMemory<Math> m_;
};

}  // namespace

std::size_t backward_workspace(const Problem& problem) {
  return with_math(problem,
                   [&]<typename Math>(Math) { return Backward<Math>(problem, nullptr, nullptr).workspace_bytes(); });
}
void backward(const Problem& problem, const BackwardArgs& args) {
  with_math(problem, [&]<typename Math>(Math) { Backward<Math>(problem, args.run.workspace, args.kept).run(args); });
}

}  // namespace mhla::cuda::summary_form
