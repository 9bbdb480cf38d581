// One call of the summary form: its sizes, its inputs, its pieces of the workspace, and the stages both passes share.
#pragma once

#include "cuda/causal/causal.hpp"
#include "cuda/denominator/denominator.hpp"
#include "cuda/mixing/mixing.hpp"
#include "cuda/resident/resident.hpp"
#include "cuda/state/state.hpp"
#include "cuda/summary/summary.hpp"
#include "cuda/support/call_shape.hpp"
#include "cuda/support/workspace.hpp"

namespace mhla::cuda::summary_form {

template <typename Math>
struct SummaryCall {
  using E = typename Math::Element;
  using T = typename Math::Accumulator;

  struct InitialState {
    const T* S = nullptr;
    const T* z = nullptr;
  };

  const Problem& problem;
  CallShape sizes;
  Workspace workspace;
  Shape shape;
  cudaStream_t stream = nullptr;

  SequenceRow* table = nullptr;  // of packed sequences
  E* S = nullptr;
  E* mixed = nullptr;    // S~
  E* weights = nullptr;  // of the mixing, as elements
  T* z = nullptr;
  T* mixed_z = nullptr;  // z~
  T* slots = nullptr;    // y of the authors' normaliser

  TokenTensor<const E> q{}, k{}, v{}, q_den{}, k_den{};
  InitialState initial{};

  // Summaries lie in `kept`, so that they outlive a forward call, or in the workspace.
  SummaryCall(const Problem& given, void* memory, void* kept = nullptr)
      : problem(given), sizes(call_shape(given)), workspace(memory), shape(sizes.shape) {
    if (!sizes.packed.empty()) shape.packed = table = workspace.take<SequenceRow>(shape.sequences);
    Workspace apart(kept);
    place_summaries(kept != nullptr ? apart : workspace);
    if (authors()) slots = workspace.take<T>(sizes.mixed_rows() * shape.capacity);
  }

  bool normalized() const { return problem.options.normalizer != Normalizer::none; }
  bool paper() const { return problem.options.normalizer == Normalizer::paper; }
  bool authors() const { return problem.options.normalizer == Normalizer::authors; }
  bool token_causal() const { return problem.options.masking == Masking::token_causal; }
  // With a denominator of its own q and k.
  bool separate() const { return normalized() && problem.separate_denominator; }

  // No summary has to reach device memory, unless rows of this call lie off 16-byte borders.
  bool causal_stays_on_chip() const { return !normalized() && causal_heads_stay_on_chip<E>(shape); }
  bool stays_on_chip() const { return !authors() && !problem.separate_denominator && heads_stay_on_chip<E>(shape); }

  std::size_t kept_bytes() {
    if (stays_on_chip()) return 0;
    Workspace measure;
    place_summaries(measure);
    return measure.used();
  }

  void bind(const Inputs& in, const Execution& run) {
    stream = static_cast<cudaStream_t>(run.stream);
    shape.mixing = in.mixing;
    initial = {static_cast<const T*>(in.initial.S), static_cast<const T*>(in.initial.z)};
    q = token_tensor<const E>(in.q, problem.key_dim);
    k = token_tensor<const E>(in.k, problem.key_dim);
    v = token_tensor<const E>(in.v, problem.value_dim);
    q_den = problem.separate_denominator ? token_tensor<const E>(in.q_den, problem.key_dim) : q;
    k_den = problem.separate_denominator ? token_tensor<const E>(in.k_den, problem.key_dim) : k;
    if (table != nullptr) upload(sizes.packed, table, stream);
  }

  // S, S~ and, with a normaliser, z and z~.
  void summarize_keys(const Summaries& final_state) {
    auto* const final_S = static_cast<T*>(final_state.S);
    auto* const final_z = static_cast<T*>(final_state.z);
    const StateArgs<E> state{shape, initial.S, initial.z, S, store_factor<E>(shape), z, final_S, final_z};
    load_initial(state, stream);
    if (final_S != nullptr) fill_final(state, stream);
    summarize<Math>({.shape = shape,
                     .left = k,
                     .right = v,
                     .feature = shape.feature,
                     .factor = store_factor<E>(shape),
                     .store = S,
                     .sums = separate() ? nullptr : z,
                     .initial_S = initial.S,
                     .initial_z = initial.z,
                     .final_S = final_S,
                     .final_z = separate() ? nullptr : final_z},
                    stream);
    if (separate())
      sum_features<E>({.shape = shape, .x = k_den, .sums = z, .initial_z = initial.z, .final_z = final_z}, stream);
    write_weights(shape, weights, stream);
    mix<Math>({.shape = shape, .weights = weights, .from = S, .to = mixed, .sums_from = z, .sums_to = mixed_z}, stream);
  }

  void find_denominators(const TokenScalars<T>& denominator) {
    denominators<E>({.shape = shape,
                     .q = q_den,
                     .k = k_den,
                     .authors = authors(),
                     .sums = authors() ? z : mixed_z,
                     .slots = slots,
                     .denominator = denominator},
                    stream);
  }

 private:
  void place_summaries(Workspace& memory) {
    S = memory.take<E>(sizes.entry_rows() * shape.matrix_size());
    mixed = memory.take<E>(sizes.mixed_rows() * shape.matrix_size());
    // Causal heads on the chip make no use of weights as elements, so forward leaves none.
    weights = (causal_stays_on_chip() ? workspace : memory).take<E>(weight_count(shape));
    if (normalized()) z = memory.take<T>(sizes.entry_rows() * shape.key_pad);
    if (paper()) mixed_z = memory.take<T>(sizes.mixed_rows() * shape.key_pad);
  }
};

}  // namespace mhla::cuda::summary_form
