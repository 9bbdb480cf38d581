// Weights of other programs: Llama's names, heads that are stored though they are tied, matrices of other sizes.
#include <fmt/format.h>

#include <array>

#include "mhla/mixing.hpp"
#include "models/base/mixing_parameters.hpp"
#include "models/base/weights.hpp"
#include "models/lm/lm.hpp"
#include "nn/causal/mixing.hpp"

namespace mhla::models {
namespace {

// transformers' names of Llama.
constexpr std::array kLlamaLayers = {SameLayer{"model.embed_tokens.", "model.embeddings."},
                                     SameLayer{".input_layernorm.", ".attn_norm."}, SameLayer{".self_attn.", ".attn."},
                                     SameLayer{".post_attention_layernorm.", ".mlp_norm."}};

// The leading corner for fewer blocks; for more, what the policy says. Undefined where it says nothing.
at::Tensor fitted_causal_mixing(const at::Tensor& stored, std::int64_t blocks, BeyondTrained beyond) {
  if (stored.dim() != 6 || stored.size(0) != stored.size(1) || stored.numel() != stored.size(0) * stored.size(1) ||
      stored.numel() == 0)
    return {};
  const std::int64_t trained = stored.size(0);
  if (blocks > trained && beyond == BeyondTrained::error) return {};
  const at::Tensor matrix = nn::extended_mixing(stored.flatten(1), blocks, beyond);
  return matrix.slice(0, 0, blocks).slice(1, 0, blocks).contiguous().view({blocks, blocks, 1, 1, 1, 1});
}

}  // namespace

std::span<const SameLayer> Lm::weight_names() const { return kLlamaLayers; }

void Lm::convert(const NamedTensors& /*targets*/, NamedTensors& stored, LoadReport& report) const {
  const auto head = stored.find("lm_head.weight");
  if (!options.tied || head == stored.end()) return;
  for (const char* embeddings : {"model.embeddings.weight", "model.embed_tokens.weight"}) {
    const auto found = stored.find(embeddings);
    if (found == stored.end() || !found->second.equal(head->second)) continue;
    report.adapted.emplace_back("lm_head.weight: the embeddings once more");
    stored.erase(head);
    return;
  }
}

Fit Lm::fit_from(const io::Json& from) const {
  if (!from.is_null()) static_cast<void>(LmDesign(from.get<LmOptions>()));
  return [this](const std::string& name, const at::Tensor& stored) {
    return is_mixing(name) ? fitted_causal_mixing(stored, options.blocks, parse_beyond_trained(options.beyond))
                           : at::Tensor();
  };
}

}  // namespace mhla::models
