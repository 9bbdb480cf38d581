// The kinds of causal attention by name.
#include "nn/causal/attention.hpp"

#include <algorithm>
#include <array>

#include "nn/causal/gla_attention.hpp"
#include "nn/causal/mhla_attention.hpp"
#include "nn/causal/softmax_attention.hpp"

namespace mhla::nn {
namespace {

constexpr std::array<std::string_view, 4> kCausalNames = {"softmax", "linear", "gla", "mhla"};

}  // namespace

std::string_view name(CausalKind value) { return kCausalNames.at(static_cast<std::size_t>(value)); }

CausalKind parse_causal_kind(std::string_view text) {
  const auto* const found = std::ranges::find(kCausalNames, text);
  if (found == kCausalNames.end())
    throw Error("attention is \"" + std::string(text) + "\"; it may be softmax, linear, gla or mhla");
  return static_cast<CausalKind>(found - kCausalNames.begin());
}

std::shared_ptr<CausalAttention> make_causal_attention(const CausalOptions& options) {
  switch (options.kind) {
    case CausalKind::softmax:
      return std::make_shared<CausalSoftmax>(options);
    case CausalKind::gla:
      return std::make_shared<CausalGla>(options);
    default:
      return std::make_shared<CausalMhla>(options);
  }
}

}  // namespace mhla::nn
