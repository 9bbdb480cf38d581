// Parity of sampling a video: noise and the states of two texts -> latents, frames.
#include "cli/parity/case.hpp"
#include "models/wan/wan_config.hpp"
#include "tasks/video/sampling.hpp"

namespace mhla::cli::parity {

Outputs run_wan_pipeline(const Case& parity_case) {
  const torch::NoGradGuard no_gradient;
  if (const auto sampler = parity_case.get<std::string>("sampler"); sampler != "unipc")
    parity_case.fail(fmt::format("config \"sampler\" is \"{}\"; it may be unipc", sampler));
  const torch::Tensor prompt = parity_case.tensor("in/text", 3), negative = parity_case.tensor("in/text_negative", 3);

  const io::SafeTensors weights = parity_case.parameters_as_file("transformer.");
  io::Json config = parity_case.member("transformer");
  config["text_len"] = prompt.size(1);
  const models::WanDesign design(models::wan_options_of(models::shapes_of(weights), config));
  check_size(design.least_elements(), weights);
  models::Wan transformer(design);
  load_whole(transformer, weights);

  const auto sizes = parity_case.member("vae").get<models::WanVaeOptions>();
  const io::SafeTensors coders = parity_case.parameters_as_file("vae.");
  check_size(models::least_elements(sizes), coders);
  models::WanVae autoencoder(sizes);
  load_whole(autoencoder, coders);
  transformer.eval(), autoencoder.eval();

  const tasks::VideoSampling sampling{.method = diffusion::Method::unipc,
                                      .steps = parity_case.get<std::int64_t>("steps", 1, 1000),
                                      .shift = parity_case.get("shift", 1e-3, 1e3),
                                      .guidance = {.scale = parity_case.get("guidance", 0.0, 1e3)}};
  const torch::Tensor latents =
      tasks::sampled_video(transformer, parity_case.tensor("in/noise", 5), prompt[0], negative[0], sampling);
  std::vector<torch::Tensor> frames;
  tasks::decode_video(autoencoder, latents, /*tile=*/0, [&](const torch::Tensor& part) { frames.push_back(part); });
  return {{"latent", latents}, {"frames", torch::cat(frames, 1)}};
}

}  // namespace mhla::cli::parity
