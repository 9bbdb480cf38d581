// Options of the video autoencoder as JSON, and their checks.
#include "models/wan_vae/wan_vae_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/base/option_checks.hpp"
#include "models/base/options_json.hpp"

namespace mhla::models {

template <typename Options, typename Visit>
  requires std::is_same_v<std::remove_const_t<Options>, WanVaeOptions>
void for_each_option(Options& options, const Visit& visit) {
  visit("base_dim", options.width);
  visit("z_dim", options.latent_channels);
  visit("dim_mult", options.multipliers);
  visit("num_res_blocks", options.residuals);
  visit("temperal_downsample", options.halves_time);
  visit("latents_mean", options.mean);
  visit("latents_std", options.deviation);
}

void to_json(io::Json& json, const WanVaeOptions& options) { write_options(json, options); }
void from_json(const io::Json& json, WanVaeOptions& options) {
  read_options(json, options, "video autoencoder", Unknown::ignored);
}

std::int64_t WanVaeOptions::frames() const { return std::int64_t{1} << std::ranges::count(halves_time, true); }

double least_elements(const WanVaeOptions& options) {
  constexpr double kFilter = 27.0;  // 3 x 3 x 3
  const auto width = static_cast<double>(options.width), latents = static_cast<double>(options.latent_channels);
  double elements = 5.0 * latents * latents, channels = width;
  for (const std::int64_t multiplier : options.multipliers) {
    channels = width * static_cast<double>(multiplier);
    elements += kFilter * channels * channels * static_cast<double>(4 * options.residuals);
  }
  return elements + kFilter * channels * (8.0 * channels + 3.0 * latents);  // the middles; from and to latents
}

void check_wan_vae_options(const WanVaeOptions& options) {
  constexpr std::int64_t kMostChannels = 1 << 12, kMostLevels = 8;
  check_range("base_dim", options.width, 1, kMostChannels);
  check_range("z_dim", options.latent_channels, 1, kMostChannels);
  check_range("num_res_blocks", options.residuals, 1, 64);
  const auto levels = static_cast<std::int64_t>(options.multipliers.size());
  check_range("the number of dim_mult", levels, 1, kMostLevels);
  for (const std::int64_t multiplier : options.multipliers) check_range("dim_mult", multiplier, 1, 64);
  if (static_cast<std::int64_t>(options.halves_time.size()) != levels - 1)
    throw Error(fmt::format("temperal_downsample has {} entries; it must have {}, one between two levels of dim_mult",
                            options.halves_time.size(), levels - 1));
  for (std::size_t level = 1; level < options.multipliers.size(); ++level)
    if (options.width * options.multipliers[level] % 2 != 0)
      throw Error(fmt::format("dim_mult has {}; with base_dim {} it must give an even number of channels",
                              options.multipliers[level], options.width));
  const auto channels = static_cast<std::size_t>(options.latent_channels);
  if (options.mean.size() != channels || options.deviation.size() != channels)
    throw Error(fmt::format("latents_mean has {} numbers and latents_std {}; both must have {}, one for each channel",
                            options.mean.size(), options.deviation.size(), channels));
  for (const double deviation : options.deviation)
    if (!std::isfinite(deviation) || deviation <= 0.0)
      throw Error(fmt::format("latents_std has {}; it must be numbers above 0", deviation));
  for (const double mean : options.mean)
    if (!std::isfinite(mean)) throw Error(fmt::format("latents_mean has {}; it must be finite numbers", mean));
}

}  // namespace mhla::models
