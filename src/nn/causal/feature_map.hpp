// phi of a causal layer: the feature maps of linear attention, applied to each head.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "mhla/types.hpp"

namespace mhla::nn {

// Learned maps have the layers A, B of width x width: hedgehog is softmax([2 y, -2 y]) of y = A x + a, t2r relu(A x),
// elementwise_product (A x + a) (B x + b). dpfp multiplies u = [relu(x), -relu(x)] with itself, rolled by 1 to 4.
enum class CausalMap { relu, identity, elu, hedgehog, t2r, elementwise_product, dpfp };
std::string_view name(CausalMap value);
CausalMap parse_causal_map(std::string_view text);

class CausalMapLayerImpl : public torch::nn::Module {
 public:
  CausalMapLayerImpl(CausalMap map, std::int64_t width);

  // Element by element, which other operators can do on the way; identity where apply() does all.
  FeatureMap elementwise() const;

  // The rest of the map. x: [.., width] -> [.., out_width(map, width)].
  at::Tensor apply(const at::Tensor& x);

  static std::int64_t out_width(CausalMap map, std::int64_t width);

  void initialise();  // hedgehog starts as softmax([2 x, -2 x])

  const CausalMap map;

 private:
  torch::nn::Linear first_ = nullptr, second_ = nullptr;
};
TORCH_MODULE(CausalMapLayer);

}  // namespace mhla::nn
