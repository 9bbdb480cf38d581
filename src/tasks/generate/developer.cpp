// From what a generator draws to pixels.
#include "tasks/generate/developer.hpp"

#include <fmt/format.h>

#include <vector>

#include "mhla/types.hpp"
#include "tasks/generate/one_thread.hpp"
#include "tasks/generate/pictures.hpp"

namespace mhla::tasks {
namespace {

// Grey or colours.
void check_channels(const char* whose, std::int64_t channels) {
  if (channels != 1 && channels != 3)
    throw Error(fmt::format("{} gives {} channels; pictures have 1 or 3", whose, channels));
}

}  // namespace

Developer::Developer(const models::LoadedGenerator& generator, std::shared_ptr<models::SdVae> autoencoder)
    : autoencoder_(std::move(autoencoder)), scale_(generator.facts.latent_scale) {
  const std::int64_t channels = generator.model->options.channels;
  if (autoencoder_ == nullptr) {
    check_channels("the generator", channels);
    return;
  }
  const models::SdVaeOptions& options = autoencoder_->options;
  if (options.latent_channels != channels)
    throw Error(fmt::format("the autoencoder has latents of {} channels, the generator draws {}",
                            options.latent_channels, channels));
  check_channels("the autoencoder", options.out_channels);
}

std::int64_t Developer::factor() const { return autoencoder_ == nullptr ? 1 : autoencoder_->options.factor(); }

at::Tensor Developer::decoded(const at::Tensor& latents) const {
  const at::Device device = autoencoder_->parameters().front().device();
  std::vector<at::Tensor> pictures(static_cast<std::size_t>(latents.size(0)));
  const auto decode = [&](std::int64_t i) {
    const torch::NoGradGuard no_gradient;
    pictures[static_cast<std::size_t>(i)] = autoencoder_->decode(latents.narrow(0, i, 1).to(device) / scale_)[0];
  };
  if (device.is_cpu())
    for_each_on_one_thread(latents.size(0), decode);
  else
    for (std::int64_t i = 0; i < latents.size(0); ++i) decode(i);
  return at::stack(pictures);
}

at::Tensor Developer::pixels(const at::Tensor& drawn) const {
  const at::Tensor pictures = autoencoder_ == nullptr ? drawn : decoded(drawn);
  if (!pictures.isfinite().all().item<bool>())
    throw Error("a picture has values that are not finite; the weights are too large or damaged");
  return pixels_of(pictures.expand({pictures.size(0), 3, pictures.size(2), pictures.size(3)}));
}

}  // namespace mhla::tasks
