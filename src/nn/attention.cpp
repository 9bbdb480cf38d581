// The kinds of attention by name, and attention as a matrix.
#include "nn/attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace mhla::nn {
namespace {

constexpr std::array<std::string_view, 3> kAttentionNames = {"softmax", "linear", "mhla"};

at::Tensor by_head(const at::Tensor& x) { return x.to(at::kDouble).transpose(1, 2); }

}  // namespace

std::string_view name(AttentionKind value) { return kAttentionNames.at(static_cast<std::size_t>(value)); }

AttentionKind parse_attention_kind(std::string_view text) {
  const auto* const found = std::ranges::find(kAttentionNames, text);
  if (found == kAttentionNames.end())
    throw Error("attention is \"" + std::string(text) + "\"; it may be softmax, linear or mhla");
  return static_cast<AttentionKind>(found - kAttentionNames.begin());
}

at::Tensor softmax_weights(const at::Tensor& q, const at::Tensor& k) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  return at::softmax(at::matmul(by_head(q) * scale, by_head(k).transpose(2, 3)), -1);
}

at::Tensor feature_weights(const at::Tensor& q, const at::Tensor& k, const at::Tensor& mixing,
                           const Partition& partition) {
  const at::Tensor blocks = block_of_tokens(partition).to(q.device());
  const at::Tensor weights = at::matmul(by_head(q), by_head(k).transpose(2, 3)) *
                             mixing.to(at::kDouble).index_select(-2, blocks).index_select(-1, blocks);
  return weights / weights.sum(-1, true).clamp_min(std::numeric_limits<double>::min());
}

}  // namespace mhla::nn
