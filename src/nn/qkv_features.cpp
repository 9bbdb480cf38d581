// One kernel for q and k, whose backward pass leaves the three gradients side by side, as an autograd function.
#include "nn/qkv_features.hpp"

#include "mhla/fused_torch.hpp"
#include "mhla/layers.hpp"
#include "nn/fused.hpp"

namespace mhla::nn {
namespace {

using cuda::layers::QkvFeatures;
using dispatch::OptionalTensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

QkvFeatures problem_of(const at::Tensor& qkv, bool norm, const QkvFeaturesOptions& options) {
  return {.rows = qkv.size(0) * qkv.size(1),
          .channels = qkv.size(2) / 3,
          .dtype = fused_dtype(qkv.scalar_type()),
          .norm = norm,
          .norm_eps = options.norm_eps,
          .feature_map = options.feature_map,
          .feature_eps = options.feature_eps};
}

struct QkvFeaturesFunction : torch::autograd::Function<QkvFeaturesFunction> {
  // Without weights nothing is normalised.
  static variable_list forward(AutogradContext* context, const at::Tensor& qkv, const OptionalTensor& q_given,
                               const OptionalTensor& k_given, const QkvFeaturesOptions& options) {
    const at::Tensor q_weight = q_given.value_or(at::Tensor()), k_weight = k_given.value_or(at::Tensor());
    const at::Tensor parts = qkv.unflatten(-1, {3, options.heads, -1});
    at::Tensor q = at::empty(parts.select(2, 0).sizes(), qkv.options()), k = at::empty_like(q);
    const at::Tensor statistics =
        at::empty({q_given ? qkv.size(0) * qkv.size(1) : 0, 2}, qkv.options().dtype(at::kFloat));
    dispatch::TorchExecution execution(qkv);
    cuda::layers::forward(problem_of(qkv, q_given.has_value(), options),
                          {.qkv = qkv.const_data_ptr(),
                           .q_weight = dispatch::vector_view(q_weight),
                           .k_weight = dispatch::vector_view(k_weight),
                           .q = q.mutable_data_ptr(),
                           .k = k.mutable_data_ptr(),
                           .statistics = statistics.mutable_data_ptr<float>()},
                          execution.run(0).stream);
    context->save_for_backward({qkv, statistics, q_weight, k_weight});
    context->set_materialize_grads(false);
    auto& data = context->saved_data;
    data["heads"] = options.heads;
    data["norm_eps"] = options.norm_eps;
    data["feature_map"] = static_cast<std::int64_t>(options.feature_map);
    data["feature_eps"] = options.feature_eps;
    return {q, k, parts.select(2, 2), parts.select(2, 2)};
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    differentiated_once("qkv_features");
    const variable_list saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const bool norm = saved[2].defined();
    const QkvFeatures p = problem_of(saved[0], norm,
                                     {.heads = data["heads"].toInt(),
                                      .norm_eps = data["norm_eps"].toDouble(),
                                      .feature_map = static_cast<FeatureMap>(data["feature_map"].toInt()),
                                      .feature_eps = data["feature_eps"].toDouble()});
    const auto gradient = [&](std::size_t i) {
      return d_outputs[i].defined() ? d_outputs[i].contiguous() : at::zeros({p.rows, p.channels}, saved[0].options());
    };
    const at::Tensor d_q = gradient(0), d_k = gradient(1), d_v = gradient(2);
    const at::Tensor d_v_more = d_outputs[3].defined() ? d_outputs[3].contiguous() : at::Tensor();
    const at::Tensor d_qkv = at::empty_like(saved[0]);
    const at::Tensor d_q_weight = norm ? at::empty_like(saved[2]) : at::Tensor();
    const at::Tensor d_k_weight = norm ? at::empty_like(saved[3]) : at::Tensor();
    const at::Tensor partial = partial_sums(d_qkv, p.partial_elements());
    dispatch::TorchExecution execution(d_qkv);
    cuda::layers::backward(p,
                           {.qkv = saved[0].const_data_ptr(),
                            .statistics = saved[1].const_data_ptr<float>(),
                            .q_weight = dispatch::vector_view(saved[2]),
                            .k_weight = dispatch::vector_view(saved[3]),
                            .d_q = d_q.const_data_ptr(),
                            .d_k = d_k.const_data_ptr(),
                            .d_v = d_v.const_data_ptr(),
                            .d_v_more = d_v_more.defined() ? d_v_more.const_data_ptr() : nullptr,
                            .d_qkv = d_qkv.mutable_data_ptr(),
                            .d_q_weight = dispatch::mutable_vector_view(d_q_weight),
                            .d_k_weight = dispatch::mutable_vector_view(d_k_weight),
                            .partial = partial.mutable_data_ptr<float>()},
                           execution.run(0).stream);
    return {d_qkv, d_q_weight, d_k_weight, {}};
  }
};

}  // namespace

Qkv qkv_features(const at::Tensor& qkv, const at::Tensor& q_weight, const at::Tensor& k_weight,
                 const QkvFeaturesOptions& options) {
  const bool norm = q_weight.defined();
  const bool as_it_is = !norm && options.feature_map == FeatureMap::identity && options.feature_eps == 0.0;
  if (!as_it_is && fused_input(qkv) && problem_of(qkv, norm, options).supported()) {
    const auto given = [&](const at::Tensor& weight) { return norm ? OptionalTensor(weight) : std::nullopt; };
    const variable_list parts = QkvFeaturesFunction::apply(qkv, given(q_weight), given(k_weight), options);
    return {parts[0], parts[1], parts[2], parts[3]};
  }
  // Unbinding, whose gradient is one stack, rather than slicing, whose gradients are padded and summed.
  const auto parts = qkv.unflatten(-1, {3, options.heads, -1}).unbind(2);
  const auto features = [&](const at::Tensor& part, const at::Tensor& weight) {
    if (as_it_is) return part;
    return std::get<0>(fused::rotary_features(part, std::nullopt,
                                              {.norm = norm ? fused::NormScope::channels : fused::NormScope::none,
                                               .weight = norm ? std::optional(weight) : std::nullopt,
                                               .norm_eps = options.norm_eps,
                                               .feature_map = options.feature_map,
                                               .feature_eps = options.feature_eps}));
  };
  return {features(parts[0], q_weight), features(parts[1], k_weight), parts[2], parts[2]};
}

}  // namespace mhla::nn
