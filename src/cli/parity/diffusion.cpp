// Parity of diffusion: schedules, losses and samplers.
#include <string_view>

#include "cli/parity/case.hpp"
#include "diffusion/gaussian.hpp"
#include "diffusion/solver.hpp"

namespace mhla::cli::parity {
namespace {

// The network of the sampler cases, a formula of the state and the time.
torch::Tensor formula(const Case& parity_case, const char* key, const torch::Tensor& x, double time) {
  constexpr std::string_view kFormula = "tanh(1.3 x) cos(2 t / 1000) + 0.2 x - 0.1";
  if (!parity_case.get<std::string>(key).starts_with(kFormula))
    parity_case.fail(fmt::format("config \"{}\" is not \"{}\"", key, kFormula));
  return torch::tanh(1.3 * x) * std::cos(2.0 * time / 1000.0) + 0.2 * x - 0.1;
}

diffusion::Method method_of(const Case& parity_case, const char* first_order) {
  const auto name = parity_case.get<std::string>("method");
  if (name == first_order) return diffusion::Method::first_order;
  if (name == "dpmpp_2m") return diffusion::Method::dpmpp_2m;
  if (name == "unipc") return diffusion::Method::unipc;
  parity_case.fail(fmt::format("config \"method\" is \"{}\"; it may be {}, dpmpp_2m or unipc", name, first_order));
}

torch::Tensor column(const diffusion::Levels& levels, double diffusion::Level::* value, std::size_t count) {
  std::vector<double> values;
  values.reserve(count);
  for (std::size_t i = 0; i < count; ++i) values.push_back(levels[i].*value);
  return torch::tensor(values, torch::kFloat64);
}

// States after steps 1, 2, 6 and the last, and what the solver walked through.
Outputs walk(const Case& parity_case, diffusion::Solver solver, diffusion::Prediction prediction, const char* network) {
  torch::Tensor x = parity_case.tensor("in/x").to(torch::kFloat64);
  const auto& levels = solver.levels();
  Outputs outputs;
  for (std::int64_t step = 0; step < solver.steps(); ++step) {
    const auto& level = levels[static_cast<std::size_t>(step)];
    const torch::Tensor output = formula(parity_case, network, x, level.time);
    x = solver.step(step, x, diffusion::predicted_data(output, x, level, prediction));
    outputs[fmt::format("x_after_{}", step + 1)] = x;
  }
  outputs["x_final"] = x;
  outputs["timesteps"] = column(levels, &diffusion::Level::time, levels.size() - 1);
  outputs["sigmas"] = column(levels, &diffusion::Level::sigma, levels.size());
  return outputs;
}

}  // namespace

Outputs run_diffusion(const Case& parity_case) {
  const diffusion::Gaussian whole(diffusion::linear_schedule(parity_case.get<std::int64_t>("steps", 2, 100000)));
  const auto count = parity_case.get<std::int64_t>("respaced", 2, whole.schedule().steps());
  const diffusion::Gaussian short_one(diffusion::respaced(whole.schedule(), count));
  const torch::Tensor x_0 = parity_case.tensor("in/x0"), noise = parity_case.tensor("in/noise");
  const torch::Tensor t = parity_case.indices("in/t", whole.schedule().steps() - 1),
                      network_output = parity_case.tensor("in/model_out");
  const torch::Tensor x_t = whole.noised(x_0, t, noise);
  const auto loss = whole.loss(network_output, x_0, x_t, t, noise);
  // The case takes x0 itself for the noised picture here.
  const auto reverse = short_one.reverse(network_output, x_0, parity_case.indices("in/t_respaced", count - 1));
  return {{"betas", torch::tensor(whole.schedule().betas, torch::kFloat64)},
          {fmt::format("betas{}", count), torch::tensor(short_one.schedule().betas, torch::kFloat64)},
          {fmt::format("timestep_map{}", count), torch::tensor(short_one.schedule().times)},
          {"x_t", x_t},
          {"loss", loss.total},
          {"mse", loss.mse},
          {"vb", loss.bound},
          {"p_mean", reverse.mean},
          {"p_logvar", reverse.log_variance},
          {"p_var", reverse.log_variance.exp()},
          {"pred_xstart", reverse.x_0}};
}

Outputs run_ddpm_sampler(const Case& parity_case) {
  const auto spacing = parity_case.get<std::string>("timestep_spacing");
  if (spacing != "leading" && spacing != "linspace")
    parity_case.fail(fmt::format("config \"timestep_spacing\" is \"{}\"; it may be leading or linspace", spacing));
  const auto levels =
      diffusion::noise_levels(diffusion::linear_schedule(), parity_case.get<std::int64_t>("steps", 1, 1000),
                              spacing == "leading" ? diffusion::Spacing::leading : diffusion::Spacing::linspace);
  return walk(parity_case, {method_of(parity_case, "ddim"), levels}, diffusion::Prediction::noise, "epsilon");
}

Outputs run_flow_sampler(const Case& parity_case) {
  const auto method = method_of(parity_case, "euler");
  const auto spacing = method == diffusion::Method::first_order ? diffusion::FlowSpacing::to_shifted_end
                                                                : diffusion::FlowSpacing::whole_times;
  const auto levels = diffusion::flow_levels(parity_case.get<std::int64_t>("steps", 1, 100000),
                                             parity_case.get("shift", 1e-3, 1e3), spacing);
  return walk(parity_case, {method, levels}, diffusion::Prediction::velocity, "velocity");
}

}  // namespace mhla::cli::parity
