// Reading of stored cases.
#include "cli/parity/case.hpp"

namespace mhla::cli::parity {

Case::Case(const std::filesystem::path& path) : file_(io::SafeTensors::load(path)) {
  const auto config = file_.metadata().find("config");
  if (config == file_.metadata().end()) fail("metadata \"config\" is missing");
  config_ = io::parse_json(config->second, file_.source() + ": metadata \"config\"");
  if (!config_.is_object()) fail("metadata \"config\" is not a JSON object");
}

torch::Tensor Case::tensor(const std::string& name) const {
  const torch::Tensor loaded = io::to_torch(file_, name);
  if (!loaded.is_floating_point()) fail(fmt::format("tensor \"{}\" is not of a floating-point type", name));
  if (!loaded.isfinite().all().item<bool>()) fail(fmt::format("tensor \"{}\" holds values that are not finite", name));
  return loaded;
}

torch::Tensor Case::tensor(const std::string& name, std::int64_t axes) const {
  const torch::Tensor loaded = tensor(name);
  if (loaded.dim() != axes) fail(fmt::format("tensor \"{}\" has {} axes, expected {}", name, loaded.dim(), axes));
  return loaded;
}

torch::Tensor Case::indices(const std::string& name, std::int64_t most, std::int64_t axes) const {
  torch::Tensor loaded = io::to_torch(file_, name);
  if (loaded.scalar_type() != torch::kInt64 || loaded.dim() != axes)
    fail(fmt::format("tensor \"{}\" is not int64 with {} ax{}s", name, axes, axes == 1 ? "i" : "e"));
  if (loaded.numel() > 0 && (loaded.min().item<std::int64_t>() < 0 || loaded.max().item<std::int64_t>() > most))
    fail(fmt::format("tensor \"{}\" has numbers outside of 0 to {}", name, most));
  return loaded;
}

std::map<std::string, torch::Tensor> Case::parameters() const {
  constexpr std::string_view kParameter = "param/";
  std::map<std::string, torch::Tensor> result;
  for (const auto& item : file_.tensors())
    if (item.first.starts_with(kParameter)) result[item.first.substr(kParameter.size())] = tensor(item.first);
  return result;
}

}  // namespace mhla::cli::parity
