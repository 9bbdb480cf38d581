// The autoencoder of Stable Diffusion from files of diffusers.
#include "models/sd_vae/sd_vae_file.hpp"

#include <fmt/format.h>

#include "io/file.hpp"
#include "models/base/weights.hpp"

namespace mhla::models {
namespace {

namespace fs = std::filesystem;

constexpr const char *kConfigFile = "config.json", *kWeightsFile = "diffusion_pytorch_model.safetensors";
constexpr std::size_t kMostConfigBytes = 1 << 20;

SdVaeOptions options_in(const fs::path& folder) {
  const fs::path path = folder / kConfigFile;
  if (!fs::exists(path)) return {};
  const auto bytes = io::read_file(path, kMostConfigBytes);
  const io::Json config = io::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
  try {
    return config.get<SdVaeOptions>();
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path.string(), error.what()));
  }
}

}  // namespace

std::shared_ptr<SdVae> load_sd_vae(const fs::path& path, const at::Device& device) {
  const bool folder = fs::is_directory(path);
  const fs::path weights = folder ? path / kWeightsFile : path;
  if (!fs::exists(weights))
    throw Error(
        fmt::format("{}: there is no such file; an autoencoder is a .safetensors file, or a folder with {} and {}",
                    weights.string(), kConfigFile, kWeightsFile));
  auto model = std::make_shared<SdVae>(options_in(folder ? path : path.parent_path()));
  const LoadReport report = load_weights(*model, weights, LoadMode::adapt);
  if (!report.missing.empty() || !report.misshapen.empty())
    throw Error(
        fmt::format("{}: it does not hold the autoencoder of Stable Diffusion:\n{}", weights.string(), report.text()));
  model->to(device);
  model->eval();
  return model;
}

}  // namespace mhla::models
