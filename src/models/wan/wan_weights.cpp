// diffusers' names of Wan's layers, and mixing matrices of other layouts.
#include <array>

#include "models/base/fit.hpp"
#include "models/base/mixing_parameters.hpp"
#include "models/wan/wan.hpp"

namespace mhla::models {
namespace {

constexpr std::array kDiffusersLayers = {SameLayer{"condition_embedder.text_embedder.linear_1.", "text_embedding.0."},
                                         SameLayer{"condition_embedder.text_embedder.linear_2.", "text_embedding.2."},
                                         SameLayer{"condition_embedder.time_embedder.linear_1.", "time_embedding.0."},
                                         SameLayer{"condition_embedder.time_embedder.linear_2.", "time_embedding.2."},
                                         SameLayer{"condition_embedder.time_proj.", "time_projection.1."},
                                         SameLayer{"proj_out.", "head.head."},
                                         SameLayer{"scale_shift_table", "head.modulation"},
                                         SameLayer{".scale_shift_table", ".modulation"},
                                         SameLayer{".attn1.to_out.0.", ".self_attn.o."},
                                         SameLayer{".attn1.to_q.", ".self_attn.q."},
                                         SameLayer{".attn1.to_k.", ".self_attn.k."},
                                         SameLayer{".attn1.to_v.", ".self_attn.v."},
                                         SameLayer{".attn1.", ".self_attn."},
                                         SameLayer{".attn2.to_out.0.", ".cross_attn.o."},
                                         SameLayer{".attn2.to_q.", ".cross_attn.q."},
                                         SameLayer{".attn2.to_k.", ".cross_attn.k."},
                                         SameLayer{".attn2.to_v.", ".cross_attn.v."},
                                         SameLayer{".attn2.", ".cross_attn."},
                                         SameLayer{".norm2.", ".norm3."},
                                         SameLayer{".ffn.net.0.proj.", ".ffn.0."},
                                         SameLayer{".ffn.net.2.", ".ffn.2."}};

}  // namespace

std::span<const SameLayer> wan_weight_names() { return kDiffusersLayers; }

std::span<const SameLayer> Wan::weight_names() const { return kDiffusersLayers; }

Fit Wan::fit_from(const io::Json& from) const {
  std::optional<WanDesign> stored_design;
  if (!from.is_null()) stored_design.emplace(from.get<WanOptions>());
  return [stored_design, own = WanDesign(options)](const std::string& name, const at::Tensor& stored) {
    return is_mixing(name) && stored_design ? fitted_mixing(stored, stored_design->partition(), own.partition())
                                            : at::Tensor();
  };
}

}  // namespace mhla::models
