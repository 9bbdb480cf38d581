// The forward pass of the summary form: summaries, mixing, readout, or all of them in one launch where a head stays on
// the chip.
#include "cuda/forms/summary_call.hpp"
#include "cuda/forms/summary_form.hpp"
#include "cuda/readout/readout.hpp"

namespace mhla::cuda::summary_form {
namespace {

template <typename Math>
class Forward {
 public:
  using E = typename Math::Element;
  using T = typename Math::Accumulator;

  Forward(const Problem& problem, void* workspace, void* kept) : c_(problem, workspace, kept) {
    if (denominators_apart()) denominator_ = take_scalars<T>(c_.workspace, c_.sizes);
  }
  std::size_t workspace_bytes() const { return c_.workspace.used(); }

  void run(const ForwardArgs& args) {
    c_.bind(args.in, args.run);
    if (run_on_chip(args) || run_causal_on_chip(args)) return;
    c_.summarize_keys(args.final_state);
    if (denominators_apart()) c_.find_denominators(denominator_);
    const Shape& shape = c_.shape;
    ReadoutArgs<E> out{.shape = shape,
                       .x = c_.q,
                       .x_feature = shape.feature,
                       .W = c_.mixed,
                       .factor = shape.scale / store_factor<E>(shape),
                       .out = token_tensor<E>(args.o, shape.value_dim),
                       .z = denominators_apart() ? nullptr : c_.mixed_z,
                       .denominator = as_const(denominator_)};
    if (c_.token_causal()) {
      out.y = c_.k;
      out.y_feature = shape.feature;
      out.rest = c_.v;
      out.pair_factor = store_factor<E>(shape);
    }
    read_out<Math>(out, c_.stream);
  }

 private:
  bool run_on_chip(const ForwardArgs& args) {
    const Shape& shape = c_.shape;
    return c_.stays_on_chip() && resident_forward<E>({.shape = shape,
                                                      .q = c_.q,
                                                      .k = c_.k,
                                                      .v = c_.v,
                                                      .o = token_tensor<E>(args.o, shape.value_dim),
                                                      .store_factor = store_factor<E>(shape),
                                                      .normalize = c_.normalized()},
                                                     c_.stream);
  }

  // S and S~ reach device memory only for backward, which needs them there.
  bool run_causal_on_chip(const ForwardArgs& args) {
    const Shape& shape = c_.shape;
    const double store = store_factor<E>(shape);
    const bool keeping = args.kept != nullptr;
    return args.final_state.S == nullptr && c_.causal_stays_on_chip() &&
           causal_heads<E>({.shape = shape,
                            .x = c_.q,
                            .y = c_.k,
                            .rest = c_.v,
                            .out = token_tensor<E>(args.o, shape.value_dim),
                            .summary_factor = store,
                            .factor = shape.scale / store,
                            .pair_factor = store,
                            .summaries = keeping ? c_.S : nullptr,
                            .mixtures = keeping ? c_.mixed : nullptr},
                           c_.stream);
  }

  // The readout cannot make them on its way.
  bool denominators_apart() const { return c_.authors() || (c_.paper() && c_.separate()); }

  SummaryCall<Math> c_;
  TokenScalars<T> denominator_{};
};

}  // namespace

std::size_t forward_workspace(const Problem& problem) {
  return with_math(problem,
                   [&]<typename Math>(Math) { return Forward<Math>(problem, nullptr, nullptr).workspace_bytes(); });
}
std::size_t kept_bytes(const Problem& problem) {
  return with_math(problem, [&]<typename Math>(Math) { return SummaryCall<Math>(problem, nullptr).kept_bytes(); });
}
void forward(const Problem& problem, const ForwardArgs& args) {
  with_math(problem, [&]<typename Math>(Math) { Forward<Math>(problem, args.run.workspace, args.kept).run(args); });
}

}  // namespace mhla::cuda::summary_form
