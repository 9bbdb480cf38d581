// What turns the tokens of a text into states that a generator looks at.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace mhla::models {

class TextEncoder {
 public:
  TextEncoder() = default;
  TextEncoder(const TextEncoder&) = delete;
  TextEncoder& operator=(const TextEncoder&) = delete;
  virtual ~TextEncoder() = default;

  // ids, mask: int64 [B, T]; mask is 1 for tokens and 0 for what a text is filled up with. States [B, T, C], zero where
  // the mask is.
  virtual at::Tensor encode(const at::Tensor& ids, const at::Tensor& mask) = 0;
};

// Texts of any lengths in one batch: the states of each, [its tokens, C].
std::vector<at::Tensor> encoded_texts(TextEncoder& encoder, const std::vector<std::vector<std::int64_t>>& texts,
                                      at::Device device = at::kCPU);

}  // namespace mhla::models
