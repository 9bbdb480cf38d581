// Parity of the video autoencoder, under Wan's names or diffusers'.
#include "models/wan_vae/wan_vae.hpp"

#include "cli/parity/case.hpp"

namespace mhla::cli::parity {
namespace {

// Wan's case has mean and inverse deviation of its latents, diffusers' has none.
models::WanVaeOptions wan_vae_options(const Case& parity_case) {
  io::Json config = parity_case.config();
  config["base_dim"] = parity_case.get<std::int64_t>("dim", 1, 1 << 12);
  const auto channels = parity_case.get<std::int64_t>("z_dim", 1, 1 << 12);
  torch::Tensor mean = torch::zeros({channels}), deviation = torch::ones({channels});
  if (parity_case.file().contains("in/mean")) {
    mean = parity_case.tensor("in/mean", 1);
    deviation = 1.0 / parity_case.tensor("in/inverse_std", 1).to(torch::kFloat64);
  }
  const auto numbers = [](const torch::Tensor& values) {
    const torch::Tensor plain = values.to(torch::kFloat64).contiguous();
    return std::vector<double>(plain.const_data_ptr<double>(), plain.const_data_ptr<double>() + plain.numel());
  };
  config["latents_mean"] = numbers(mean);
  config["latents_std"] = numbers(deviation);
  return config.get<models::WanVaeOptions>();
}

}  // namespace

Outputs run_wan_vae(const Case& parity_case) {
  const torch::NoGradGuard no_gradient;
  const models::WanVaeOptions options = wan_vae_options(parity_case);
  const io::SafeTensors file = parity_case.parameters_as_file();
  check_size(models::least_elements(options), file);
  models::WanVae model(options);
  model.eval();
  load_whole(model, file);
  torch::Tensor decoded = model.decode(model.unscaled(parity_case.tensor("in/latent", 5)));
  if (parity_case.get<std::string>("names") == "diffusers") decoded = decoded.clamp(-1.0, 1.0);  // as its decoder does
  return {{"encoded", model.scaled(model.encode(parity_case.tensor("in/video", 5)))}, {"decoded", decoded}};
}

}  // namespace mhla::cli::parity
