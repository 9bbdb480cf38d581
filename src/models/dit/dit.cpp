// The blocks of the diffusion transformer, and other names of its layers.
#include "models/dit/dit.hpp"

#include <array>

namespace mhla::models {
namespace {

// Original DiT's names of the attention's layers.
constexpr std::array kSameLayers = {SameLayer{".attn.qkv.", ".attn.to_qkv."},
                                    SameLayer{".attn.proj.", ".attn.to_out.0."}};

}  // namespace

Dit::Dit(const DitDesign& design) : DiffusionTransformer(design) {
  for (const nn::AttentionKind kind : design.attention)
    add_block(std::make_shared<DitBlock>(design.attention_options(kind), options.cpe));
  initialise();
}

std::span<const SameLayer> Dit::weight_names() const { return kSameLayers; }

}  // namespace mhla::models
