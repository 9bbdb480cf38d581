// Reading of stored cases.
#include "cli/parity/case.hpp"

#include "models/base/weights.hpp"

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

io::SafeTensors Case::parameters_as_file(const std::string& prefix) const {
  const std::string start = "param/" + prefix;
  std::map<std::string, io::SafeTensor> tensors;
  for (const auto& [name, tensor] : file_.tensors())
    if (name.starts_with(start)) tensors[name.substr(start.size())] = tensor;
  return io::SafeTensors::parse(io::encode_safetensors(tensors), file_.source());
}

void check_size(double least_elements, const io::SafeTensors& file) {
  if (least_elements > models::elements_of(file))
    throw Error(fmt::format("{}: the model has more parameters than the file", file.source()));
}

void load_whole(models::Model& model, const io::SafeTensors& file) {
  const models::LoadReport report = models::load_weights(model, file, models::LoadMode::adapt);
  if (!report.missing.empty() || !report.extra.empty() || !report.misshapen.empty())
    throw Error(fmt::format("{}: the parameters do not fit the model\n{}", file.source(), report.text()));
}

}  // namespace mhla::cli::parity
