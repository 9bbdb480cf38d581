// Loading, strict or adapting, and saving.
#include "models/base/weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace mhla::models {
namespace {

std::string shape(const at::Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")); }

void add_lines(std::string& text, const char* heading, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  text += fmt::format("{}{}:\n  {}", text.empty() ? "" : "\n", heading, fmt::join(lines, "\n  "));
}

std::string renamed(const std::string& name, std::string_view from, std::string_view to) {
  const std::size_t at = name.find(from);
  const bool found = at != std::string::npos && (from.starts_with('.') || at == 0);
  return found ? std::string(name).replace(at, from.size(), to) : name;
}

// The model's name of a stored tensor, or the name it has.
std::string name_in_model(const std::string& name, const NamedTensors& targets, std::span<const SameLayer> same) {
  for (const std::string& candidate : names_of(name, same))
    if (targets.contains(candidate)) return candidate;
  return name;
}

Fit fit_of(const Model& model, const io::SafeTensors& file) {
  const io::Json config = stored_json(file, kConfig);
  try {
    return model.fit_from(config);
  } catch (const Error& error) {
    throw config_error(file, error);
  }
}

// Stored tensors under the names and in the shapes of the model, as far as possible.
NamedTensors adapted(const Model& model, const io::SafeTensors& file, NamedTensors stored, LoadReport& report) {
  const NamedTensors targets = named_tensors(model);
  const Fit fit = fit_of(model, file);
  model.convert(targets, stored, report);
  NamedTensors result;
  for (auto& [name, tensor] : stored) result[name_in_model(name, targets, model.weight_names())] = tensor;
  for (auto& [name, tensor] : result) {
    const auto target = targets.find(name);
    if (target == targets.end() || target->second.sizes() == tensor.sizes()) continue;
    const at::Tensor fitted = fit(name, tensor);
    if (!fitted.defined() || fitted.sizes() != target->second.sizes()) continue;
    report.adapted.push_back(fmt::format("{}: {} resized to {}", name, shape(tensor), shape(fitted)));
    tensor = fitted;
  }
  return result;
}

LoadReport load(torch::nn::Module& module, const NamedTensors& stored, const std::string& source, LoadMode mode,
                LoadReport report) {
  const NamedTensors targets = named_tensors(module);
  NamedTensors fitting;
  for (const auto& [name, target] : targets) {
    const auto found = stored.find(name);
    if (found == stored.end())
      report.missing.push_back(name);
    else if (found->second.sizes() != target.sizes())
      report.misshapen.push_back(
          fmt::format("{}: {} in the file, {} in the model", name, shape(found->second), shape(target)));
    else if (found->second.is_floating_point() != target.is_floating_point())
      report.misshapen.push_back(fmt::format("{}: {} in the file, {} in the model", name,
                                             c10::toString(found->second.scalar_type()),
                                             c10::toString(target.scalar_type())));
    else if (!found->second.isfinite().all().item<bool>())
      throw Error(fmt::format("{}: tensor \"{}\" holds values that are not finite", source, name));
    else
      fitting[name] = found->second;
  }
  for (const auto& item : stored)
    if (!targets.contains(item.first)) report.extra.push_back(item.first);
  const bool whole = report.missing.empty() && report.extra.empty() && report.misshapen.empty();
  if (mode == LoadMode::strict && !whole)
    throw Error(fmt::format("{}: the tensors do not fit the model\n{}", source, report.text()));

  const torch::NoGradGuard no_gradient;
  for (const auto& [name, tensor] : fitting) at::Tensor(targets.at(name)).copy_(tensor);
  report.loaded = static_cast<std::int64_t>(fitting.size());
  return report;
}

}  // namespace

std::string LoadReport::text() const {
  std::string result;
  add_lines(result, "adapted", adapted);
  add_lines(result, "missing in the file", missing);
  add_lines(result, "in the file, but not in the model", extra);
  add_lines(result, "of another shape or type", misshapen);
  return result;
}

LoadReport load_weights(Model& model, const io::SafeTensors& file, LoadMode mode) {
  NamedTensors stored;
  for (const auto& item : file.tensors()) stored[item.first] = io::to_torch(file, item.first);
  LoadReport report;
  if (mode == LoadMode::adapt) stored = adapted(model, file, std::move(stored), report);
  return load(model, stored, file.source(), mode, std::move(report));
}

LoadReport load_weights(Model& model, const std::filesystem::path& path, LoadMode mode) {
  return load_weights(model, io::SafeTensors::load(path), mode);
}

LoadReport load_tensors(torch::nn::Module& module, const NamedTensors& stored, const std::string& source) {
  return load(module, stored, source, LoadMode::strict, {});
}

void save_model(const Model& model, const std::filesystem::path& path, const io::Json& metadata, at::ScalarType dtype) {
  io::Json with_config = metadata;
  with_config[kConfig] = model.config();
  save_weights(model, path, with_config, dtype);
}

void save_weights(const torch::nn::Module& module, const std::filesystem::path& path, const io::Json& metadata,
                  at::ScalarType dtype) {
  NamedTensors tensors = named_tensors(module);
  for (auto& item : tensors)
    if (item.second.is_floating_point()) item.second = item.second.to(dtype);
  std::map<std::string, std::string> texts;
  for (const auto& item : metadata.items())
    texts[item.key()] = item.value().is_string() ? item.value().get<std::string>() : item.value().dump();
  io::save_tensors(path, tensors, texts);
}

std::vector<std::string> names_of(const std::string& name, std::span<const SameLayer> same) {
  std::vector<std::string> names = {name};
  for (const auto& [one, other] : same)
    for (const auto& [from, to] : {std::pair{one, other}, std::pair{other, one}})
      if (std::string changed = renamed(name, from, to); changed != name) names.push_back(std::move(changed));
  std::string forth = name, back = name;  // all parts of a name that have others, one after another
  for (const auto& [one, other] : same) forth = renamed(forth, one, other), back = renamed(back, other, one);
  names.insert(names.end(), {forth, back});
  return names;
}

double elements_of(const io::SafeTensors& file) {
  std::size_t elements = 0;
  for (const auto& [name, tensor] : file.tensors())
    elements += tensor.data.size() / io::safetensors_element_size(tensor.dtype);
  return static_cast<double>(elements);
}

io::Json stored_json(const io::SafeTensors& file, const char* key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end()
             ? io::Json()
             : io::parse_json(found->second, fmt::format("{}: metadata \"{}\"", file.source(), key));
}

Error config_error(const io::SafeTensors& file, const Error& error) {
  return Error(fmt::format("{}: metadata \"{}\": {}", file.source(), kConfig, error.what()));
}

}  // namespace mhla::models
