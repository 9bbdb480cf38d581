#include <algorithm>

#include "cuda/denominator/denominator.hpp"
#include "cuda/hopper/causal_gradients.hpp"
#include "cuda/hopper/causal_heads.hpp"
#include "cuda/hopper/readout.hpp"
#include "cuda/hopper/resident.hpp"
#include "cuda/mixing/mixing.hpp"
#include "cuda/readout/readout.hpp"
#include "cuda/state/state.hpp"
#include "cuda/summary/summary.hpp"
#include "cuda/summary_form.hpp"
#include "cuda/support/call.hpp"
#include "cuda/support/launch.hpp"
#include "cuda/support/workspace.hpp"

namespace mhla::cuda::summary_form {
namespace {

// One call: its shape, its pieces of the workspace, and the stages both passes share.
template <typename Math>
class Call {
 public:
  using E = typename Math::Element;
  using T = typename Math::Accumulator;

  // Summaries lie in `kept`, so that they outlive a forward call, or in the workspace.
  Call(const Problem& problem, void* workspace, void* kept = nullptr)
      : p_(problem), call_(call_shape(problem)), workspace_(workspace), shape_(call_.shape) {
    if (!call_.packed.empty()) shape_.packed = table_ = take<SequenceRow>(shape_.sequences);
    Workspace apart(kept);
    place_summaries(kept != nullptr ? apart : workspace_);
    if (authors()) slots_ = take<T>(call_.mixed_rows() * shape_.capacity);
  }

  std::size_t used() const { return workspace_.used(); }
  std::size_t kept_bytes() {
    if (stays_on_chip()) return 0;
    Workspace measure;
    place_summaries(measure);
    return measure.used();
  }

 protected:
  bool normalized() const { return p_.options.normalizer != Normalizer::none; }
  bool paper() const { return p_.options.normalizer == Normalizer::paper; }
  bool authors() const { return p_.options.normalizer == Normalizer::authors; }
  bool token_causal() const { return p_.options.masking == Masking::token_causal; }

  // No summary has to reach device memory, unless rows of this call lie off 16-byte borders.
  bool causal_stays_on_chip() const {
    if constexpr (sizeof(E) == 2) {
      return !normalized() && hopper::causal_heads_stay_on_chip<E>(shape_);
    } else {
      return false;
    }
  }
  bool stays_on_chip() const {
    if constexpr (sizeof(E) == 2) {
      return !authors() && !p_.separate_denominator && hopper::stays_on_chip<E>(shape_);
    } else {
      return false;
    }
  }

  template <typename U>
  U* take(std::int64_t count) {
    return workspace_.take<U>(count);
  }
  TokenScalars<T> take_scalars() {
    return {take<T>(call_.batch * call_.tokens * shape_.heads), call_.tokens, shape_.heads};
  }

  void place_summaries(Workspace& memory) {
    S_ = memory.take<E>(call_.entry_rows() * shape_.matrix_size());
    mixed_ = memory.take<E>(call_.mixed_rows() * shape_.matrix_size());
    // Causal heads on the chip make no use of weights as elements, so forward leaves none.
    weights_ = (causal_stays_on_chip() ? workspace_ : memory).take<E>(weight_count(shape_));
    if (normalized()) z_ = memory.take<T>(call_.entry_rows() * shape_.key_pad);
    if (paper()) mixed_z_ = memory.take<T>(call_.mixed_rows() * shape_.key_pad);
  }

  void bind(const Inputs& in, const Execution& run) {
    stream_ = static_cast<cudaStream_t>(run.stream);
    shape_.mixing = in.mixing;
    initial_ = {static_cast<const T*>(in.initial.S), static_cast<const T*>(in.initial.z)};
    q_ = token_tensor<const E>(in.q, p_.key_dim);
    k_ = token_tensor<const E>(in.k, p_.key_dim);
    v_ = token_tensor<const E>(in.v, p_.value_dim);
    q_den_ = p_.separate_denominator ? token_tensor<const E>(in.q_den, p_.key_dim) : q_;
    k_den_ = p_.separate_denominator ? token_tensor<const E>(in.k_den, p_.key_dim) : k_;
    if (table_ != nullptr) upload(call_.packed, table_, stream_);
  }

  // S, S~ and, with a normaliser, z and z~.
  void summarize_keys(const Summaries& final_state) {
    auto* const final_S = static_cast<T*>(final_state.S);
    auto* const final_z = static_cast<T*>(final_state.z);
    const StateArgs<E> state{shape_, initial_.S, initial_.z, S_, store_factor<E>(shape_), z_, final_S, final_z};
    load_initial(state, stream_);
    if (final_S != nullptr) fill_final(state, stream_);
    const bool z_apart = normalized() && p_.separate_denominator;
    summarize<Math>({.shape = shape_,
                     .left = k_,
                     .right = v_,
                     .feature = shape_.feature,
                     .factor = store_factor<E>(shape_),
                     .store = S_,
                     .sums = z_apart ? nullptr : z_,
                     .initial_S = initial_.S,
                     .initial_z = initial_.z,
                     .final_S = final_S,
                     .final_z = z_apart ? nullptr : final_z},
                    stream_);
    if (z_apart) {
      sum_features<E>({.shape = shape_, .x = k_den_, .sums = z_, .initial_z = initial_.z, .final_z = final_z}, stream_);
    }
    write_weights(shape_, weights_, stream_);
    mix<Math>({.shape = shape_, .weights = weights_, .from = S_, .to = mixed_, .sums_from = z_, .sums_to = mixed_z_},
              stream_);
  }

  void find_denominators(const TokenScalars<T>& denominator) {
    denominators<E>({.shape = shape_,
                     .q = q_den_,
                     .k = k_den_,
                     .authors = authors(),
                     .sums = authors() ? z_ : mixed_z_,
                     .slots = slots_,
                     .denominator = denominator},
                    stream_);
  }

  struct Initial {
    const T* S = nullptr;
    const T* z = nullptr;
  };

  const Problem& p_;
  CallShape call_;
  Workspace workspace_;
  Shape shape_;
  cudaStream_t stream_ = nullptr;
  SequenceRow* table_ = nullptr;
  E* S_ = nullptr;
  E* mixed_ = nullptr;
  E* weights_ = nullptr;
  T* z_ = nullptr;
  T* mixed_z_ = nullptr;
  T* slots_ = nullptr;
  Initial initial_;
  TokenTensor<const E> q_, k_, v_, q_den_, k_den_;
};

template <typename Math>
class Forward : public Call<Math> {
 public:
  using E = typename Math::Element;
  using T = typename Math::Accumulator;

  Forward(const Problem& problem, void* workspace, void* kept) : Call<Math>(problem, workspace, kept) {
    if (apart()) denominator_ = this->take_scalars();
  }

  void run(const ForwardArgs& args) {
    this->bind(args.in, args.run);
    if (run_on_chip(args) || run_causal_on_chip(args)) return;
    this->summarize_keys(args.final_state);
    if (apart()) this->find_denominators(denominator_);
    const Shape& shape = this->shape_;
    ReadoutArgs<E> out{.shape = shape,
                       .x = this->q_,
                       .x_feature = shape.feature,
                       .W = this->mixed_,
                       .factor = shape.scale / store_factor<E>(shape),
                       .out = token_tensor<E>(args.o, shape.value_dim),
                       .z = apart() ? nullptr : this->mixed_z_,
                       .denominator = as_const(denominator_)};
    if (this->token_causal()) {
      out.y = this->k_;
      out.y_feature = shape.feature;
      out.rest = this->v_;
      out.inner_factor = shape.scale;
    }
    read_out<Math>(out, this->stream_);
  }

 private:
  bool run_on_chip(const ForwardArgs& args) {
    if constexpr (sizeof(E) == 2) {
      const Shape& shape = this->shape_;
      return this->stays_on_chip() && hopper::resident_forward<E>({.shape = shape,
                                                                   .q = this->q_,
                                                                   .k = this->k_,
                                                                   .v = this->v_,
                                                                   .o = token_tensor<E>(args.o, shape.value_dim),
                                                                   .store_factor = store_factor<E>(shape),
                                                                   .normalize = this->normalized()},
                                                                  this->stream_);
    } else {
      return false;
    }
  }

  // S and S~ reach device memory only for backward, which needs them there.
  bool run_causal_on_chip(const ForwardArgs& args) {
    if constexpr (sizeof(E) == 2) {
      const Shape& shape = this->shape_;
      const double store = store_factor<E>(shape);
      const bool keeping = args.kept != nullptr;
      return args.final_state.S == nullptr && this->causal_stays_on_chip() &&
             hopper::causal_heads<E>({.shape = shape,
                                      .x = this->q_,
                                      .y = this->k_,
                                      .rest = this->v_,
                                      .out = token_tensor<E>(args.o, shape.value_dim),
                                      .summary_factor = store,
                                      .factor = shape.scale / store,
                                      .inner_factor = shape.scale,
                                      .summaries = keeping ? this->S_ : nullptr,
                                      .mixtures = keeping ? this->mixed_ : nullptr},
                                     this->stream_);
    } else {
      return false;
    }
  }

  // Denominators that the readout cannot make on its way.
  bool apart() const { return this->authors() || (this->paper() && this->p_.separate_denominator); }

  TokenScalars<T> denominator_;
};

template <typename Math>
class Backward : public Call<Math> {
 public:
  using E = typename Math::Element;
  using T = typename Math::Accumulator;

  // What was kept is only read.
  Backward(const Problem& problem, void* workspace, const void* kept)
      : Call<Math>(problem, workspace, const_cast<void*>(kept)) {
    const Shape& shape = this->shape_;
    const std::int64_t mixed = this->call_.mixed_rows();
    if (this->stays_on_chip()) {
      pairs_ = take_pairs();
      scratch_ = this->template take<E>(hopper::resident_scratch(shape));
    }
    d_mixed_ = this->template take<E>(mixed * shape.matrix_size());
    dS_ = this->template take<E>(this->call_.entry_rows() * shape.matrix_size());
    partial_ =
        this->template take<T>(static_cast<std::int64_t>(mixing_gradient_workspace(shape, shape.uniform.blocks)));
    if (this->token_causal()) {
      diagonal_parts_ = readout_column_tiles(problem.dtype, shape.key_dim, shape.value_pad) + (separate() ? 1 : 0);
      diagonal_ = this->template take<T>(mixed * diagonal_parts_);
    }
    if (!this->normalized()) return;
    d_mixed_z_ = this->template take<T>(mixed * shape.key_pad);
    dz_ = this->template take<T>(this->call_.entry_rows() * shape.key_pad);
    denominator_ = this->take_scalars();
    g_ = this->take_scalars();
    const std::int64_t row = static_cast<std::int64_t>(shape.heads) * shape.value_dim;
    dU_ = token_tensor<E>(BasicTensor<void*>{this->template take<E>(this->call_.batch * this->call_.tokens * row),
                                             this->call_.tokens * row, row, shape.value_dim},
                          shape.value_dim);
    if (this->authors()) {
      dy_ = this->take_scalars();
      g_slots_ = this->template take<T>(mixed * shape.capacity);
      pairs_ = take_pairs();
    }
  }

  void run(const BackwardArgs& args) {
    this->bind(args.in, args.run);
    if (run_on_chip(args)) return;
    if (args.kept == nullptr && !summarize_keys_on_chip()) this->summarize_keys({});
    TokenTensor<const E> dU = token_tensor<const E>(args.d_o, this->shape_.value_dim);
    if (this->normalized()) dU = differentiate_normalizer(args);
    if (!differentiate_summaries_on_chip(args, dU)) differentiate_summaries(args, dU);
    if (args.d_mixing == nullptr) diagonal_ = nullptr;
    if (!differentiate_causal_tokens(args, dU)) differentiate_tokens(args, dU);
    if (args.d_mixing != nullptr) differentiate_mixing(args);
  }

 private:
  T* take_pairs() {
    const Shape& shape = this->shape_;
    return this->template take<T>(static_cast<std::int64_t>(shape.sequences) * shape.heads * shape.mixing_blocks *
                                  shape.mixing_blocks);
  }

  bool run_on_chip(const BackwardArgs& args) {
    if constexpr (sizeof(E) == 2) {
      const Shape& shape = this->shape_;
      const auto rows = [](const auto& x, int dim) { return token_tensor<E>(x, dim); };
      const auto const_rows = [](const auto& x, int dim) { return token_tensor<const E>(x, dim); };
      if (!this->stays_on_chip() ||
          !hopper::resident_backward<E>({.shape = shape,
                                         .q = this->q_,
                                         .k = this->k_,
                                         .v = this->v_,
                                         .o = const_rows(args.o, shape.value_dim),
                                         .d_o = const_rows(args.d_o, shape.value_dim),
                                         .d_q = rows(args.d_q, shape.key_dim),
                                         .d_k = rows(args.d_k, shape.key_dim),
                                         .d_v = rows(args.d_v, shape.value_dim),
                                         .store_factor = store_factor<E>(shape),
                                         .normalize = this->normalized(),
                                         .scratch = scratch_,
                                         .pairs = args.d_mixing != nullptr ? pairs_ : nullptr},
                                        this->stream_))
        return false;
      if (args.d_mixing != nullptr) sum_pairs<T>(shape, pairs_, 1, static_cast<T*>(args.d_mixing), this->stream_);
      return true;
    } else {
      return false;
    }
  }

  bool separate() const { return this->normalized() && this->p_.separate_denominator; }
  // What multiplies q's own vector in the denominator: d den, or d y of the authors' normaliser.
  TokenScalars<const T> coefficient() const { return as_const(this->authors() ? dy_ : g_); }

  TokenTensor<const E> differentiate_normalizer(const BackwardArgs& args) {
    const bool on_the_way = this->paper() && !separate() && !this->token_causal();
    if (!on_the_way) this->find_denominators(denominator_);
    normalized_gradient<E>({.shape = this->shape_,
                            .q = this->q_,
                            .z = on_the_way ? this->mixed_z_ : nullptr,
                            .o = token_tensor<const E>(args.o, this->shape_.value_dim),
                            .d_o = token_tensor<const E>(args.d_o, this->shape_.value_dim),
                            .denominator = as_const(denominator_),
                            .dU = dU_,
                            .g = g_},
                           this->stream_);
    if (this->authors()) {
      reference_gradient<E>({.shape = this->shape_,
                             .slots = this->slots_,
                             .g_slots = g_slots_,
                             .g = as_const(g_),
                             .dy = dy_,
                             .pairs = args.d_mixing != nullptr ? pairs_ : nullptr},
                            this->stream_);
    }
    return as_const(dU_);
  }

  // S and S~ in one pass over the blocks.
  bool summarize_keys_on_chip() {
    if constexpr (sizeof(E) == 2) {
      return this->causal_stays_on_chip() && hopper::causal_heads<E>({.shape = this->shape_,
                                                                      .y = this->k_,
                                                                      .rest = this->v_,
                                                                      .summary_factor = store_factor<E>(this->shape_),
                                                                      .summaries = this->S_,
                                                                      .mixtures = this->mixed_},
                                                                     this->stream_);
    } else {
      return false;
    }
  }
  // dS~ and dS likewise, from the last block to the first.
  bool differentiate_summaries_on_chip(const BackwardArgs& args, const TokenTensor<const E>& dU) {
    if constexpr (sizeof(E) == 2) {
      const Shape& shape = this->shape_;
      if (!this->causal_stays_on_chip()) return false;
      if (args.d_final.S == nullptr && hopper::causal_heads<E>({.shape = shape,
                                                                .reversed = true,
                                                                .y = this->q_,
                                                                .rest = dU,
                                                                .summary_factor = shape.scale,
                                                                .summaries = d_mixed_,
                                                                .mixtures = dS_},
                                                               this->stream_))
        return true;
      write_weights(shape, this->weights_, this->stream_);
    }
    return false;
  }

  // dS~ from queries and dU, then dS through the mixing; likewise dz~ and dz.
  void differentiate_summaries(const BackwardArgs& args, const TokenTensor<const E>& dU) {
    const Shape& shape = this->shape_;
    const bool fused = this->normalized() && !separate();
    summarize<Math>({.shape = shape,
                     .left = this->q_,
                     .right = dU,
                     .feature = shape.feature,
                     .of_queries = true,
                     .factor = shape.scale,
                     .store = d_mixed_,
                     .sums = fused ? d_mixed_z_ : nullptr,
                     .weights = fused ? coefficient() : TokenScalars<const T>{},
                     .sums_factor = shape.scale},
                    this->stream_);
    if (separate()) {
      sum_features<E>({.shape = shape,
                       .x = this->q_den_,
                       .of_queries = true,
                       .weights = coefficient(),
                       .factor = shape.scale,
                       .sums = d_mixed_z_},
                      this->stream_);
    }
    mix_adjoint<Math>({.shape = shape,
                       .weights = this->weights_,
                       .from = d_mixed_,
                       .to = dS_,
                       .sums_from = d_mixed_z_,
                       .sums_to = this->paper() ? dz_ : nullptr,
                       .d_final_S = static_cast<const T*>(args.d_final.S),
                       .d_final_z = static_cast<const T*>(args.d_final.z),
                       .d_initial_S = static_cast<T*>(args.d_initial.S),
                       .d_initial_z = static_cast<T*>(args.d_initial.z)},
                      this->stream_);
    if (this->authors()) {
      gather_own_sums<E>(
          {.shape = shape, .from = d_mixed_z_, .d_final_z = static_cast<const T*>(args.d_final.z), .to = dz_},
          this->stream_);
    }
  }

  // All gradients of tokens in one pass.
  bool differentiate_causal_tokens(const BackwardArgs& args, const TokenTensor<const E>& dU) {
    if constexpr (sizeof(E) == 2) {
      const Shape& shape = this->shape_;
      return !this->normalized() && hopper::causal_gradients<E>({.shape = shape,
                                                                 .q = this->q_,
                                                                 .k = this->k_,
                                                                 .v = this->v_,
                                                                 .d_o = dU,
                                                                 .mixed = this->mixed_,
                                                                 .dS = dS_,
                                                                 .query_factor = shape.scale / store_factor<E>(shape),
                                                                 .d_q = token_tensor<E>(args.d_q, shape.key_dim),
                                                                 .d_k = token_tensor<E>(args.d_k, shape.key_dim),
                                                                 .d_v = token_tensor<E>(args.d_v, shape.value_dim),
                                                                 .diagonal = diagonal_,
                                                                 .diagonal_stride = diagonal_parts_},
                                                                this->stream_);
    } else {
      return false;
    }
  }

  void differentiate_tokens(const BackwardArgs& args, const TokenTensor<const E>& dU) {
    const Shape& shape = this->shape_;
    const bool pairs = this->token_causal();
    const bool fused = this->normalized() && !separate();
    const T* const own_vector = this->authors() ? own_z() : this->mixed_z_;
    ReadoutArgs<E> d_q{.shape = shape,
                       .x = dU,
                       .W = this->mixed_,
                       .transposed = true,
                       .factor = shape.scale / store_factor<E>(shape),
                       .out = token_tensor<E>(args.d_q, shape.key_dim),
                       .inner_factor = shape.scale,
                       .vector = fused ? own_vector : nullptr,
                       .coefficient = fused ? coefficient() : TokenScalars<const T>{},
                       .rank_one_factor = shape.scale,
                       .raw = this->q_,
                       .raw_feature = shape.feature};
    ReadoutArgs<E> d_v{.shape = shape,
                       .of_queries = false,
                       .x = this->k_,
                       .x_feature = shape.feature,
                       .W = dS_,
                       .out = token_tensor<E>(args.d_v, shape.value_dim),
                       .inner_factor = shape.scale};
    ReadoutArgs<E> d_k{.shape = shape,
                       .of_queries = false,
                       .x = this->v_,
                       .W = dS_,
                       .transposed = true,
                       .out = token_tensor<E>(args.d_k, shape.key_dim),
                       .inner_factor = shape.scale,
                       .vector = fused ? dz_ : nullptr,
                       .raw = this->k_,
                       .raw_feature = shape.feature};
    if (pairs) {
      const auto g = fused ? as_const(g_) : TokenScalars<const T>{};
      d_q.y = this->v_;
      d_q.rest = this->k_;
      d_q.rest_feature = shape.feature;
      d_q.g = g;
      d_q.diagonal = diagonal_;
      d_q.diagonal_stride = diagonal_parts_;
      d_v.y = this->q_;
      d_v.y_feature = shape.feature;
      d_v.rest = dU;
      d_k.y = dU;
      d_k.rest = this->q_;
      d_k.rest_feature = shape.feature;
      d_k.g = g;
    }
    read_out<Math>(d_q, this->stream_);
    bool done = false;
    if constexpr (sizeof(E) == 2) done = hopper::read_out_keys<E>(d_k, d_v, this->stream_);
    if (!done) {
      read_out<Math>(d_v, this->stream_);
      read_out<Math>(d_k, this->stream_);
    }
    if (separate()) {
      separate_gradient<E>({.shape = shape,
                            .q = this->q_den_,
                            .k = this->k_den_,
                            .g = coefficient(),
                            .q_vector = this->authors() ? this->z_ : this->mixed_z_,
                            .own = this->authors(),
                            .dz = dz_,
                            .d_q = token_tensor<E>(args.d_q_den, shape.key_dim),
                            .d_k = token_tensor<E>(args.d_k_den, shape.key_dim),
                            .diagonal = diagonal_,
                            .diagonal_parts = diagonal_parts_,
                            .diagonal_part = diagonal_parts_ - 1},
                           this->stream_);
    }
  }

  // z_b of every query row, where d_q expects a vector per row of the S~ store.
  const T* own_z() {
    spread_own_sums<E>({.shape = this->shape_, .from = this->z_, .to = d_mixed_z_}, this->stream_);
    return d_mixed_z_;
  }

  void differentiate_mixing(const BackwardArgs& args) {
    mixing_gradient<Math>({.shape = this->shape_,
                           .S = this->S_,
                           .d_mixed = d_mixed_,
                           .factor = 1 / store_factor<E>(this->shape_),
                           .z = this->paper() ? this->z_ : nullptr,
                           .d_mixed_z = d_mixed_z_,
                           .diagonal = diagonal_,
                           .diagonal_parts = diagonal_parts_,
                           .pairs = this->authors() ? pairs_ : nullptr,
                           .partial = partial_,
                           .d_mixing = static_cast<T*>(args.d_mixing)},
                          this->shape_.uniform.blocks, this->stream_);
  }

  E* d_mixed_ = nullptr;
  E* dS_ = nullptr;
  T* partial_ = nullptr;
  T* diagonal_ = nullptr;
  int diagonal_parts_ = 0;
  T* d_mixed_z_ = nullptr;
  T* dz_ = nullptr;
  TokenScalars<T> denominator_, g_, dy_;
  TokenTensor<E> dU_;
  T* g_slots_ = nullptr;
  T* pairs_ = nullptr;
  E* scratch_ = nullptr;
};

}  // namespace

std::size_t forward_workspace(const Problem& problem) {
  return with_math(problem, [&]<typename Math>(Math) { return Forward<Math>(problem, nullptr, nullptr).used(); });
}
std::size_t backward_workspace(const Problem& problem) {
  return with_math(problem, [&]<typename Math>(Math) { return Backward<Math>(problem, nullptr, nullptr).used(); });
}
std::size_t kept_bytes(const Problem& problem) {
  return with_math(problem, [&]<typename Math>(Math) { return Call<Math>(problem, nullptr).kept_bytes(); });
}
void forward(const Problem& problem, const ForwardArgs& args) {
  with_math(problem, [&]<typename Math>(Math) { Forward<Math>(problem, args.run.workspace, args.kept).run(args); });
}
void backward(const Problem& problem, const BackwardArgs& args) {
  with_math(problem, [&]<typename Math>(Math) { Backward<Math>(problem, args.run.workspace, args.kept).run(args); });
}

}  // namespace mhla::cuda::summary_form
