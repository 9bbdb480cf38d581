// Other names, moved biases and other sizes.
#include "models/weights_adapt.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <utility>

namespace mhla::models {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kSameLayers = {
    {{".attn.qkv.", ".attn.to_qkv."}, {".attn.proj.", ".attn.to_out.0."}}};

std::string replaced(const std::string& name, std::string_view from, std::string_view to) {
  const std::size_t at = name.find(from);
  return at == std::string::npos ? name : std::string(name).replace(at, from.size(), to);
}

// The model's name of a stored tensor, or the name it has.
std::string name_in_model(const std::string& name, const NamedTensors& targets) {
  if (targets.contains(name)) return name;
  std::vector<std::string> others;
  for (const auto& [timm, authors] : kSameLayers) {
    others.push_back(replaced(name, timm, authors));
    others.push_back(replaced(name, authors, timm));
  }
  if (name.starts_with("norm.")) others.push_back("fc_" + name);
  if (name.starts_with("fc_norm.")) others.push_back(name.substr(3));
  for (const std::string& other : others)
    if (targets.contains(other)) return other;
  return name;
}

void fold_value_bias(const NamedTensors& targets, NamedTensors& stored, LoadReport& report) {
  constexpr std::string_view kBias = ".attn.qkv.bias";
  std::vector<std::string> folded;
  for (const auto& [name, bias] : stored) {
    if (!name.ends_with(kBias) || targets.contains(name)) continue;
    const std::string layer = name.substr(0, name.size() - kBias.size()) + ".attn.";
    const auto weight = stored.find(layer + "proj.weight"), out = stored.find(layer + "proj.bias");
    if (targets.contains(layer + "to_qkv.bias") || weight == stored.end() || out == stored.end()) continue;
    const at::Tensor value = bias.to(at::kDouble).chunk(3)[2];
    if (weight->second.dim() != 2 || weight->second.size(1) != value.size(0)) continue;
    out->second = (out->second.to(at::kDouble) + weight->second.to(at::kDouble).mv(value)).to(at::kFloat);
    folded.push_back(name);
    report.adapted.push_back(
        fmt::format("{}: the part of v moved into {}to_out.0.bias, q and k left out", name, layer));
  }
  for (const std::string& name : folded) stored.erase(name);
}

}  // namespace

void adapt_to(torch::nn::Module& module, const NamedTensors& targets, const std::optional<ClassifierOptions>& from,
              NamedTensors& stored, LoadReport& report) {
  fold_value_bias(targets, stored, report);
  NamedTensors renamed;
  for (const auto& [name, tensor] : stored) renamed[name_in_model(name, targets)] = tensor;
  stored = std::move(renamed);

  auto* const classifier = dynamic_cast<Classifier*>(&module);
  if (classifier == nullptr) return;
  for (auto& [name, tensor] : stored) {
    const auto target = targets.find(name);
    if (target == targets.end() || target->second.sizes() == tensor.sizes()) continue;
    const at::Tensor fitted = classifier->fitted(name, tensor, from);
    if (!fitted.defined() || fitted.sizes() != target->second.sizes()) continue;
    report.adapted.push_back(fmt::format("{}: [{}] resized to [{}]", name, fmt::join(tensor.sizes(), ", "),
                                         fmt::join(fitted.sizes(), ", ")));
    tensor = fitted;
  }
}

}  // namespace mhla::models
