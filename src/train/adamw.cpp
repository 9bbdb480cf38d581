// The fused update. Clipping is a division of the gradients inside the kernel: by norm / clip where that exceeds one.
#include "train/adamw.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "mhla/types.hpp"

namespace mhla::train {

namespace {

// Parameters of a kind are updated together.
std::pair<bool, double> kind(const Parameter& parameter) { return {parameter.decays, parameter.rate}; }

}  // namespace

AdamW::AdamW(const std::vector<Parameter>& parameters, const AdamWOptions& options) : options_(options) {
  if (parameters.empty()) throw Error("the model has no parameter that requires a gradient");
  std::vector<Parameter> sorted = parameters;
  std::ranges::stable_sort(sorted, std::greater{}, kind);
  for (const Parameter& parameter : sorted) {
    if (groups_.empty() || kind(parameter) != std::pair(groups_.back().decays, groups_.back().rate))
      groups_.push_back({parameter.decays, parameter.rate, {}, {}, {}, {}});
    Group& group = groups_.back();
    const at::Tensor values = parameter.tensor.detach();
    group.names.push_back(parameter.name);
    group.parameters.push_back(parameter.tensor);
    group.exp_avg.push_back(at::zeros_like(values));
    group.exp_avg_sq.push_back(at::zeros_like(values));
  }
  const auto scalar = at::TensorOptions(at::kFloat).device(parameters.front().tensor.device());
  steps_ = at::zeros({}, scalar);
  skipped_ = at::zeros({}, scalar);
}

at::Tensor AdamW::step(double learning_rate) {
  const at::NoGradGuard no_grad;
  std::vector<std::vector<std::size_t>> used(groups_.size());
  std::vector<at::Tensor> gradients;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (std::size_t i = 0; i < groups_[g].parameters.size(); ++i)
      if (const at::Tensor& gradient = groups_[g].parameters[i].grad(); gradient.defined()) {
        used[g].push_back(i);
        gradients.push_back(gradient);
      }
  if (gradients.empty()) throw Error("no parameter received a gradient");

  const at::Tensor norm = at::stack(at::_foreach_norm(gradients)).norm();
  const at::Tensor not_finite = norm.isfinite().logical_not().to(at::kFloat);
  std::optional<at::Tensor> divisor;
  if (options_.clip > 0.0) divisor = (norm / options_.clip).clamp_min(1.0);
  steps_.add_(1.0 - not_finite);
  skipped_.add_(not_finite);

  for (std::size_t g = 0, first = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    if (used[g].empty()) continue;
    std::vector<at::Tensor> parameters, exp_avg, exp_avg_sq;
    for (const std::size_t i : used[g]) {
      parameters.push_back(group.parameters[i]);
      exp_avg.push_back(group.exp_avg[i]);
      exp_avg_sq.push_back(group.exp_avg_sq[i]);
    }
    const std::vector<at::Tensor> steps(used[g].size(), steps_);
    at::_fused_adamw_(parameters, at::TensorList(gradients).slice(first, used[g].size()), exp_avg, exp_avg_sq, {},
                      steps, group.rate * learning_rate, options_.beta1, options_.beta2,
                      group.decays ? options_.weight_decay : 0.0, options_.eps, false, false, divisor, not_finite);
    first += used[g].size();
  }
  return norm;
}

NamedTensors AdamW::state() const {
  NamedTensors state{{"steps", steps_}, {"skipped", skipped_}};
  for (const Group& group : groups_)
    for (std::size_t i = 0; i < group.names.size(); ++i) {
      state.emplace("exp_avg/" + group.names[i], group.exp_avg[i]);
      state.emplace("exp_avg_sq/" + group.names[i], group.exp_avg_sq[i]);
    }
  return state;
}

}  // namespace mhla::train
