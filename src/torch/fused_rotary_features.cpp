// torch.ops.mhla.rotary_features and its derivative.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include "core/fused_validate.hpp"
#include "mhla/fused_torch.hpp"
#include "torch/differentiated.hpp"
#include "torch/execution.hpp"
#include "torch/fused_tensors.hpp"
#include "torch/kernel.hpp"
#include "torch/tensors.hpp"

namespace mhla::dispatch::rotary_features {
namespace {

using fused::NormScope;
using fused::RotaryFeatures;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Pair = std::tuple<at::Tensor, at::Tensor>;

// One call; fields in the order of the schema. Lists and names are views of what the caller holds.
struct RotaryCall {
  at::Tensor x;
  OptionalTensor weight{}, cos{}, sin{};
  c10::SymIntArrayRef sizes{};
  at::IntArrayRef pairs{};
  std::string_view norm;
  double norm_eps = 0.0;
  std::string_view feature_map;
  double feature_eps = 0.0;
  std::string_view layout;
  bool with_plain = false;

  auto arguments() const {
    return std::tie(x, weight, cos, sin, sizes, pairs, norm, norm_eps, feature_map, feature_eps, layout, with_plain);
  }
};

struct RotaryGradients {
  OptionalTensor d_y, d_plain;

  auto arguments() const { return std::tie(d_y, d_plain); }
};

c10::SymInt table_entries(const RotaryCall& call) {
  c10::SymInt entries = 0;
  for (std::size_t axis = 0; axis < call.sizes.size(); ++axis)
    entries = entries + call.sizes[axis] * c10::SymInt(call.pairs[axis]);
  return entries;
}

bool table_per_batch(const RotaryCall& call) { return call.cos && call.cos->dim() == 3; }

void check_table(const RotaryCall& call, const OptionalTensor& table, std::string_view argument) {
  if (!table) refuse(argument, " is missing; cos and sin must be given together");
  check_dense(*table, argument);
  dtype_of(*table, argument);
  check_device(*table, argument, call.x.device(), "that of x, ");
  const bool per_batch = table_per_batch(call);
  if (per_batch && call.sizes.size() != 1) {
    refuse(argument, " has 3 axes, one table for each batch row; it must be one table for a grid of tokens");
  }
  const c10::SymInt entries = per_batch ? call.x.sym_size(0) * table_entries(call) : table_entries(call);
  if (table->sym_numel() != entries) {
    refuse(argument, " has ", table->sym_numel(), " entries; it must have ", entries,
           ", for each axis its size times its pairs", per_batch ? ", for each batch row" : "");
  }
}

void check_rotary(const RotaryCall& call) {
  if (call.sizes.size() != call.pairs.size() || call.sizes.size() > 3) {
    refuse("sizes has ", call.sizes.size(), " entries and pairs ", call.pairs.size(),
           "; it must be one for each axis, up to 3");
  }
  if (!call.cos && !call.sin) {
    if (!call.sizes.empty()) refuse("cos is missing; it must be given with sizes and pairs");
    return;
  }
  if (call.sizes.empty()) refuse("sizes is empty; it must hold the sizes of the grid of tokens beside cos and sin");
  c10::SymInt tokens = 1;
  std::int64_t pairs = 0;
  for (std::size_t axis = 0; axis < call.sizes.size(); ++axis) {
    if (call.pairs[axis] < 0) refuse("pairs has an entry ", call.pairs[axis], "; it must be at least 0");
    tokens = tokens * call.sizes[axis];
    pairs += call.pairs[axis];
  }
  if (tokens != call.x.sym_size(1)) {
    refuse("sizes hold ", tokens, " tokens; they must hold those of x, ", call.x.sym_size(1));
  }
  if (c10::SymInt(2 * pairs) > call.x.sym_size(3)) {
    refuse("pairs are ", pairs, " in all; they must be at most half the width of x, ", call.x.sym_size(3));
  }
  check_table(call, call.cos, "cos");
  check_table(call, call.sin, "sin");
}

RotaryFeatures check(const RotaryCall& call) {
  const at::Tensor& x = call.x;
  check_token_rows(x, "x", 4, "[batch, tokens, heads, width]");
  fused::require_eps("norm_eps", call.norm_eps);
  require_finite("feature_eps", call.feature_eps);
  RotaryFeatures p{.dtype = dtype_of(x, "x"),
                   .norm = fused::parse_norm_scope(call.norm),
                   .norm_eps = call.norm_eps,
                   .feature_map = parse_feature_map(call.feature_map),
                   .feature_eps = call.feature_eps};
  p.rotary.layout = fused::parse_rotary_layout(call.layout);
  if (call.weight && p.norm == NormScope::none) refuse("weight is given; it must not be with norm 'none'");
  const c10::SymInt width = p.norm == NormScope::channels ? x.sym_size(2) * x.sym_size(3) : x.sym_size(3);
  check_vector(call.weight, "weight", width, x);
  check_rotary(call);
  return p;
}

void set_sizes(RotaryFeatures& p, const RotaryCall& call) {
  const at::Tensor& x = call.x;
  p.device = mhla_device(x);
  p.batch = x.size(0), p.tokens = x.size(1), p.heads = x.size(2), p.dim = x.size(3);
  if (!call.cos) return;
  p.rotary.axes = static_cast<int>(call.sizes.size());
  for (std::size_t axis = 0; axis < call.sizes.size(); ++axis) {
    p.rotary.sizes[axis] = call.sizes[axis].guard_int(__FILE__, __LINE__);
    p.rotary.pairs[axis] = call.pairs[axis];
  }
}

// The tensors of a call in the form libmhla reads.
class Operands {
 public:
  Operands(const RotaryCall& call, const RotaryFeatures& p)
      : x_(call.x), weight_(readable(call.weight)),
        table_stride_(table_per_batch(call) ? p.rotary.table_elements() : 0) {
    const at::ScalarType type = scalar_type(accumulation_type(p.dtype));
    if (call.cos) cos_ = call.cos->to(type).contiguous(), sin_ = call.sin->to(type).contiguous();
  }

  RotaryFeatures::Inputs inputs() const {
    return {.x = token_view(x_),
            .weight = vector_view(weight_),
            .cos = cos_.defined() ? data_of(cos_) : nullptr,
            .sin = sin_.defined() ? data_of(sin_) : nullptr,
            .table_stride = table_stride_};
  }

 private:
  at::Tensor x_, weight_, cos_, sin_;
  std::int64_t table_stride_;
};

Pair allocate(const RotaryCall& call) {
  return {empty_like_contiguous(call.x), call.with_plain ? empty_like_contiguous(call.x) : nothing(call.x)};
}

Pair forward_meta(const RotaryCall& call) {
  check(call);
  return allocate(call);
}

Pair forward_device(const RotaryCall& call) {
  RotaryFeatures p = check(call);
  set_sizes(p, call);
  TorchExecution execution(call.x);
  const Operands operands(call, p);
  Pair result = allocate(call);
  const auto& [y, plain] = result;
  fused::forward(p, {.in = operands.inputs(),
                     .y = mutable_token_view(y),
                     .plain = mutable_token_view(plain),
                     .run = execution.run(0)});
  return result;
}

RotaryFeatures check_backward(const RotaryGradients& gradients, const RotaryCall& call) {
  check_gradient(gradients.d_y, "d_y", call.x);
  check_gradient(gradients.d_plain, "d_plain", call.x);
  return check(call);
}

Pair allocate_backward(const RotaryCall& call) {
  return {empty_like_contiguous(call.x), call.weight ? empty_like_contiguous(*call.weight) : nothing(call.x)};
}

Pair backward_meta(const RotaryGradients& gradients, const RotaryCall& call) {
  check_backward(gradients, call);
  return allocate_backward(call);
}

Pair backward_device(const RotaryGradients& gradients, const RotaryCall& call) {
  RotaryFeatures p = check_backward(gradients, call);
  set_sizes(p, call);
  TorchExecution execution(call.x);
  const Operands operands(call, p);
  const at::Tensor d_y_read = readable(gradients.d_y), d_plain_read = readable(gradients.d_plain);
  Pair result = allocate_backward(call);
  const auto& [d_x, d_weight] = result;
  fused::backward(p, {.in = operands.inputs(),
                      .d_y = token_view(d_y_read),
                      .d_plain = token_view(d_plain_read),
                      .d_x = mutable_token_view(d_x),
                      .d_weight = mutable_vector_view(d_weight),
                      .run = execution.run(call.weight ? backward_workspace(p) : 0)});
  return result;
}

#define MHLA_ROTARY_ARGUMENTS                                                                                  \
  "Tensor x, Tensor? weight, Tensor? cos, Tensor? sin, SymInt[] sizes, int[] pairs, str norm=\"none\", float " \
  "norm_eps=1e-06, str feature_map=\"relu\", float feature_eps=0.0, str layout=\"half\", bool with_plain=False"

Pair call_forward(const RotaryCall& call) {
  static const auto op = operator_handle<&forward_meta>("mhla::rotary_features");
  return call_operator(op, call);
}

Pair call_backward(const RotaryGradients& gradients, const RotaryCall& call) {
  static const auto op = operator_handle<&backward_meta>("mhla::rotary_features_backward");
  return call_operator(op, gradients, call);
}

struct RotaryFeaturesFunction : torch::autograd::Function<RotaryFeaturesFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const OptionalTensor& weight,
                               const RotaryCall& call) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [y, plain] = call_forward(call);
    context->save_for_backward(
        {x, weight.value_or(at::Tensor()), call.cos.value_or(at::Tensor()), call.sin.value_or(at::Tensor())});
    context->set_materialize_grads(false);
    if (!call.with_plain) context->mark_non_differentiable({plain});
    auto& data = context->saved_data;
    data["sizes"] = c10::IValue(call.sizes);
    data["pairs"] = call.pairs;
    data["names"] =
        std::vector<std::string>{std::string(call.norm), std::string(call.feature_map), std::string(call.layout)};
    data["numbers"] = std::vector<double>{call.norm_eps, call.feature_eps};
    data["with_plain"] = call.with_plain;
    return {y, plain};
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    const auto given = [](const at::Tensor& tensor) {
      return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
    };
    auto& data = context->saved_data;
    const bool with_plain = data["with_plain"].toBool();
    const OptionalTensor d_y = given(d_outputs[0]), d_plain = with_plain ? given(d_outputs[1]) : std::nullopt;
    if (!d_y && !d_plain) return variable_list(3);
    const variable_list saved = context->get_saved_variables();
    const std::vector<c10::SymInt> sizes = data["sizes"].toSymIntVector();
    const std::vector<std::int64_t> pairs = data["pairs"].toIntVector();
    const auto names = data["names"].to<std::vector<std::string>>();
    const std::vector<double> numbers = data["numbers"].toDoubleVector();
    const auto [d_x, d_weight] =
        call_backward({d_y, d_plain}, {saved[0], given(saved[1]), given(saved[2]), given(saved[3]), sizes, pairs,
                                       names[0], numbers[0], names[1], numbers[1], names[2], with_plain});
    return {d_x, saved[1].defined() ? d_weight : at::Tensor(), {}};
  }
};

Pair forward_autograd(const RotaryCall& call) {
  if (!differentiated(call.x) && !differentiated(call.weight)) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return call_forward(call);
  }
  const variable_list outputs = RotaryFeaturesFunction::apply(call.x, call.weight, call);
  return {outputs[0], outputs[1]};
}

TORCH_LIBRARY_FRAGMENT(mhla, library) {
  library.def("rotary_features(" MHLA_ROTARY_ARGUMENTS ") -> (Tensor y, Tensor plain)", {at::Tag::pt2_compliant_tag});
  library.def("rotary_features_backward(Tensor? d_y, Tensor? d_plain, " MHLA_ROTARY_ARGUMENTS
              ") -> (Tensor d_x, Tensor d_weight)",
              {at::Tag::pt2_compliant_tag});
}
#undef MHLA_ROTARY_ARGUMENTS

TORCH_LIBRARY_IMPL(mhla, CPU, library) {
  library.impl("rotary_features", kernel<&forward_device>);
  library.impl("rotary_features_backward", kernel<&backward_device>);
}

TORCH_LIBRARY_IMPL(mhla, CUDA, library) {
  library.impl("rotary_features", kernel<&forward_device>);
  library.impl("rotary_features_backward", kernel<&backward_device>);
}

TORCH_LIBRARY_IMPL(mhla, Meta, library) {
  library.impl("rotary_features", kernel<&forward_meta>);
  library.impl("rotary_features_backward", kernel<&backward_meta>);
}

TORCH_LIBRARY_IMPL(mhla, Autograd, library) {
  library.impl("rotary_features", kernel<&forward_autograd>);
  library.impl("rotary_features_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace mhla::dispatch::rotary_features

namespace mhla::fused {

std::tuple<at::Tensor, at::Tensor> rotary_features(const at::Tensor& x, const std::optional<RotaryTables>& rotary,
                                                   const RotaryFeaturesOptions& options) {
  dispatch::rotary_features::RotaryCall call{.x = x,
                                             .weight = options.weight,
                                             .norm = name(options.norm),
                                             .norm_eps = options.norm_eps,
                                             .feature_map = name(options.feature_map),
                                             .feature_eps = options.feature_eps,
                                             .layout = name(rotary ? rotary->layout : RotaryLayout::half),
                                             .with_plain = options.plain};
  std::vector<c10::SymInt> sizes;
  if (rotary) {
    sizes.assign(rotary->sizes.begin(), rotary->sizes.end());
    call.cos = rotary->cos, call.sin = rotary->sin;
    call.sizes = sizes, call.pairs = rotary->pairs;
  }
  return dispatch::rotary_features::call_forward(call);
}

}  // namespace mhla::fused
