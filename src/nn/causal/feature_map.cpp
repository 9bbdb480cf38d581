// Feature maps in torch's operations.
#include "nn/causal/feature_map.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "nn/projection.hpp"

namespace mhla::nn {
namespace {

constexpr std::array<std::string_view, 7> kCausalMapNames = {
    "relu", "identity", "elu", "hedgehog", "t2r", "elementwise_product", "dpfp"};
constexpr std::int64_t kDpfpRolls = 4;

at::Tensor dpfp(const at::Tensor& x) {
  const at::Tensor positive = at::relu(x), both = at::cat({positive, -positive}, -1);
  std::vector<at::Tensor> products;
  for (std::int64_t j = 1; j <= kDpfpRolls; ++j) products.push_back(both * both.roll(j, -1));
  return at::cat(products, -1);
}

}  // namespace

std::string_view name(CausalMap value) { return kCausalMapNames.at(static_cast<std::size_t>(value)); }

CausalMap parse_causal_map(std::string_view text) {
  const auto* const found = std::ranges::find(kCausalMapNames, text);
  if (found == kCausalMapNames.end())
    throw Error("feature_map is \"" + std::string(text) +
                "\"; it may be relu, identity, elu, hedgehog, t2r, elementwise_product or dpfp");
  return static_cast<CausalMap>(found - kCausalMapNames.begin());
}

CausalMapLayerImpl::CausalMapLayerImpl(CausalMap map, std::int64_t width) : map(map) {
  const auto linear = [&](bool bias) { return torch::nn::Linear(torch::nn::LinearOptions(width, width).bias(bias)); };
  if (map == CausalMap::hedgehog || map == CausalMap::t2r)
    first_ = register_module("layer", linear(map == CausalMap::hedgehog));
  if (map == CausalMap::elementwise_product) {
    first_ = register_module("layer1", linear(true));
    second_ = register_module("layer2", linear(true));
  }
}

FeatureMap CausalMapLayerImpl::elementwise() const {
  if (map == CausalMap::relu) return FeatureMap::relu;
  return map == CausalMap::elu ? FeatureMap::elu_plus_one : FeatureMap::identity;
}

at::Tensor CausalMapLayerImpl::apply(const at::Tensor& x) {
  switch (map) {
    case CausalMap::hedgehog: {
      const at::Tensor y = 2.0 * projected(x, first_);
      return at::softmax(at::cat({y, -y}, -1), -1);
    }
    case CausalMap::t2r:
      return at::relu(projected(x, first_));
    case CausalMap::elementwise_product:
      return projected(x, first_) * projected(x, second_);
    case CausalMap::dpfp:
      return dpfp(x);
    default:
      return x;
  }
}

std::int64_t CausalMapLayerImpl::out_width(CausalMap map, std::int64_t width) {
  if (map == CausalMap::hedgehog) return 2 * width;
  return map == CausalMap::dpfp ? 2 * kDpfpRolls * width : width;
}

void CausalMapLayerImpl::initialise() {
  if (map != CausalMap::hedgehog) return;
  const torch::NoGradGuard no_gradient;
  torch::nn::init::eye_(first_->weight);
  first_->bias.zero_();
}

}  // namespace mhla::nn
