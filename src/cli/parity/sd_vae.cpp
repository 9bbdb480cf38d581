// Parity of the image autoencoder.
#include "models/sd_vae/sd_vae.hpp"

#include "cli/parity/case.hpp"
#include "models/base/weights.hpp"

namespace mhla::cli::parity {

Outputs run_sd_vae(const Case& parity_case) {
  const torch::NoGradGuard no_gradient;
  models::SdVae model(parity_case.config().get<models::SdVaeOptions>());
  model.eval();
  models::load_tensors(model, parity_case.parameters(), parity_case.file().source());
  const auto posterior = model.encode(parity_case.tensor("in/image", 4));
  return {{"mean", posterior.mean},
          {"logvar", posterior.log_variance},
          {"decoded", model.decode(parity_case.tensor("in/latent", 4))}};
}

}  // namespace mhla::cli::parity
