// Texts as one batch, the shorter ones filled up.
#include "models/base/text_encoder.hpp"

#include <algorithm>

namespace mhla::models {

std::vector<at::Tensor> encoded_texts(TextEncoder& encoder, const std::vector<std::vector<std::int64_t>>& texts,
                                      at::Device device) {
  std::size_t longest = 1;
  for (const auto& text : texts) longest = std::max(longest, text.size());
  const auto rows = static_cast<std::int64_t>(texts.size());
  const at::Tensor ids = at::zeros({rows, static_cast<std::int64_t>(longest)}, at::kLong), mask = at::zeros_like(ids);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto& text = texts[static_cast<std::size_t>(row)];
    std::ranges::copy(text, ids[row].mutable_data_ptr<std::int64_t>());
    mask[row].slice(0, 0, static_cast<std::int64_t>(text.size())).fill_(1);
  }
  if (texts.empty()) return {};
  const at::Tensor states = encoder.encode(ids.to(device), mask.to(device));
  std::vector<at::Tensor> result;
  result.reserve(texts.size());
  for (std::int64_t row = 0; row < rows; ++row)
    result.push_back(states[row].slice(0, 0, static_cast<std::int64_t>(texts[static_cast<std::size_t>(row)].size())));
  return result;
}

}  // namespace mhla::models
