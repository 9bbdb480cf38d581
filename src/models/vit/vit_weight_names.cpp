// Weights of vision transformers that other programs stored. timm's qkv and proj are the authors' to_qkv and to_out.0,
// timm's norm is fc_norm where there is no class token.
#include <fmt/format.h>

#include <array>

#include "models/base/weights.hpp"
#include "models/vit/vit.hpp"

namespace mhla::models {
namespace {

constexpr std::array kSameLayers = {SameLayer{".attn.qkv.", ".attn.to_qkv."},
                                    SameLayer{".attn.proj.", ".attn.to_out.0."}, SameLayer{"norm.", "fc_norm."}};

}  // namespace

std::span<const SameLayer> Vit::weight_names() const { return kSameLayers; }

// Where to_qkv has no bias, the stored bias of v moves through the projection into the bias of the output (exact for
// attention whose weights sum to one), and those of q and k are left out.
void Vit::convert(const NamedTensors& targets, NamedTensors& stored, LoadReport& report) const {
  constexpr std::string_view kBias = ".attn.qkv.bias";
  std::vector<std::string> moved;
  for (const auto& [name, bias] : stored) {
    if (!name.ends_with(kBias) || targets.contains(name)) continue;
    const std::string layer = name.substr(0, name.size() - kBias.size()) + ".attn.";
    const auto weight = stored.find(layer + "proj.weight"), out = stored.find(layer + "proj.bias");
    if (targets.contains(layer + "to_qkv.bias") || weight == stored.end() || out == stored.end()) continue;
    const at::Tensor& matrix = weight->second;
    if (matrix.dim() != 2 || bias.dim() != 1 || bias.size(0) != 3 * matrix.size(1) || matrix.size(1) == 0 ||
        out->second.sizes() != matrix.sizes().slice(0, 1))
      continue;
    const at::Tensor value = bias.to(at::kDouble).chunk(3)[2];
    out->second = (out->second.to(at::kDouble) + matrix.to(at::kDouble).mv(value)).to(at::kFloat);
    moved.push_back(name);
    report.adapted.push_back(
        fmt::format("{}: the part of v moved into {}to_out.0.bias, q and k left out", name, layer));
  }
  for (const std::string& name : moved) stored.erase(name);
}

}  // namespace mhla::models
