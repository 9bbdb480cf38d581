// Strict loading and saving; weights_adapt.cpp has what adapt adds.
#include "models/weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mhla/types.hpp"
#include "models/classifier_file.hpp"
#include "models/weights_adapt.hpp"
#include "tensor_io/tensors.hpp"

namespace mhla::models {
namespace {

std::string shape(const at::Tensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")); }

void add_lines(std::string& text, const char* heading, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  text += fmt::format("{}{}:\n  {}", text.empty() ? "" : "\n", heading, fmt::join(lines, "\n  "));
}

}  // namespace

NamedTensors named_tensors(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& item : module.named_parameters()) tensors[item.key()] = item.value();
  for (const auto& item : module.named_buffers()) tensors[item.key()] = item.value();
  return tensors;
}

std::string LoadReport::text() const {
  std::string result;
  add_lines(result, "adapted", adapted);
  add_lines(result, "missing in the file", missing);
  add_lines(result, "in the file, but not in the model", extra);
  add_lines(result, "of another shape or type", misshapen);
  return result;
}

LoadReport load_weights(torch::nn::Module& module, const std::filesystem::path& path, LoadMode mode) {
  const io::SafeTensors file = io::SafeTensors::load(path);
  NamedTensors stored;
  for (const auto& item : file.tensors()) stored[item.first] = io::to_torch(file, item.first);
  LoadReport report;
  if (mode == LoadMode::adapt) adapt_to(module, named_tensors(module), stored_options(file), stored, report);
  return load_tensors(module, stored, file.source(), mode, std::move(report));
}

LoadReport load_tensors(torch::nn::Module& module, const NamedTensors& stored, const std::string& source, LoadMode mode,
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

void save_weights(const torch::nn::Module& module, const std::filesystem::path& path, const io::Json& metadata,
                  at::ScalarType dtype) {
  NamedTensors tensors = named_tensors(module);
  for (auto& item : tensors)
    if (item.second.is_floating_point()) item.second = item.second.detach().to(dtype);
  std::map<std::string, std::string> texts;
  for (const auto& item : metadata.items())
    texts[item.key()] = item.value().is_string() ? item.value().get<std::string>() : item.value().dump();
  io::save_tensors(path, tensors, texts);
}

}  // namespace mhla::models
