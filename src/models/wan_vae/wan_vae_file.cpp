// The video autoencoder of Wan2.1 from files.
#include "models/wan_vae/wan_vae_file.hpp"

#include <fmt/format.h>

#include "models/base/weight_files.hpp"
#include "models/base/weights.hpp"

namespace mhla::models {
namespace {

namespace fs = std::filesystem;

constexpr const char *kWanVaeConfig = "config.json", *kWanVaeWeights = "diffusion_pytorch_model.safetensors";

WanVaeOptions wan_vae_options_in(const fs::path& folder) {
  const fs::path path = folder / kWanVaeConfig;
  if (!fs::exists(path)) return {};
  try {
    return read_json_file(path).get<WanVaeOptions>();
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path.string(), error.what()));
  }
}

}  // namespace

std::shared_ptr<WanVae> load_wan_vae(const fs::path& path, at::Device device, at::ScalarType type) {
  const bool folder = fs::is_directory(path);
  const fs::path weights = folder ? path / kWanVaeWeights : path;
  if (!fs::exists(weights))
    throw Error(
        fmt::format("{}: there is no such file; a video autoencoder is a .safetensors file, or a folder with {} "
                    "and {}",
                    weights.string(), kWanVaeConfig, kWanVaeWeights));
  auto model = std::make_shared<WanVae>(wan_vae_options_in(folder ? path : path.parent_path()));
  const LoadReport report = load_weights(*model, weights, LoadMode::adapt);
  if (!report.missing.empty() || !report.extra.empty() || !report.misshapen.empty())
    throw Error(
        fmt::format("{}: it does not hold the video autoencoder of Wan2.1:\n{}", weights.string(), report.text()));
  model->to(device, type);
  model->eval();
  return model;
}

}  // namespace mhla::models
