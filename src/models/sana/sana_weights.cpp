// Weights of Sana that other programs stored, and matrices of other sizes.
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "models/base/fit.hpp"
#include "models/base/mixing_parameters.hpp"
#include "models/base/weights.hpp"
#include "models/sana/sana.hpp"

namespace mhla::models {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

// diffusers' parts of names and those of NVlabs; all that stand in a name are exchanged, in this order.
constexpr std::array kParts = {
    Pair{"time_embed.emb.timestep_embedder.linear_1.", "t_embedder.mlp.0."},
    Pair{"time_embed.emb.timestep_embedder.linear_2.", "t_embedder.mlp.2."},
    Pair{"time_embed.linear.", "t_block.1."},
    Pair{"caption_projection.linear_1.", "y_embedder.y_proj.fc1."},
    Pair{"caption_projection.linear_2.", "y_embedder.y_proj.fc2."},
    Pair{"caption_norm.", "attention_y_norm."},
    Pair{"patch_embed.proj.", "x_embedder.proj."},
    Pair{"proj_out.", "final_layer.linear."},
    Pair{"transformer_blocks.", "blocks."},
    Pair{".attn1.", ".attn."},
    Pair{".attn2.", ".cross_attn."},
    Pair{".norm_q.", ".q_norm."},
    Pair{".norm_k.", ".k_norm."},
    Pair{".to_out.0.", ".proj."},
    Pair{".cross_attn.to_q.", ".cross_attn.q_linear."},
    Pair{".ff.conv_inverted.", ".mlp.inverted_conv.conv."},
    Pair{".ff.conv_depth.", ".mlp.depth_conv.conv."},
    Pair{".ff.conv_point.", ".mlp.point_conv.conv."},
};

std::string nvlabs_name(std::string name) {
  if (name == "scale_shift_table") return "final_layer.scale_shift_table";
  for (const auto& [theirs, ours] : kParts)
    if (const std::size_t at = name.find(theirs); at != std::string::npos) name.replace(at, theirs.size(), ours);
  return name;
}

// Layers that are one in NVlabs' names: what is before the parts, the parts, and the whole.
struct Joined {
  std::string_view layer;
  std::array<std::string_view, 3> parts;
  std::string_view whole;
};
constexpr std::array kJoined = {Joined{".attn.", {"to_q.", "to_k.", "to_v."}, "qkv."},
                                Joined{".cross_attn.", {"to_k.", "to_v.", ""}, "kv_linear."}};

void join(NamedTensors& stored, const Joined& joined) {
  const std::string first = std::string(joined.layer) + std::string(joined.parts[0]);
  std::vector<std::string> starts;
  for (const auto& item : stored)
    if (item.first.find(first) != std::string::npos) starts.push_back(item.first);
  for (const std::string& name : starts) {
    const std::size_t at = name.find(first) + joined.layer.size();
    const auto with = [&](std::string_view piece) {
      return std::string(name).replace(at, joined.parts[0].size(), piece);
    };
    std::vector<at::Tensor> rows;
    for (const std::string_view piece : joined.parts)
      if (const auto found = stored.find(with(piece)); !piece.empty() && found != stored.end())
        rows.push_back(found->second);
    const std::size_t wanted = joined.parts[2].empty() ? 2 : 3;
    if (rows.size() != wanted || std::ranges::any_of(rows, [&](const at::Tensor& row) {
          return row.dim() < 1 || row.sizes() != rows.front().sizes();
        }))
      continue;
    for (const std::string_view piece : joined.parts)
      if (!piece.empty()) stored.erase(with(piece));
    stored[with(joined.whole)] = at::cat(rows);
  }
}

// Buffers of NVlabs that belong to no layer here: the text of no prompt, and positions that are not used.
bool unused(const std::string& name) { return name == "y_embedder.y_embedding" || name == "pos_embed"; }

}  // namespace

void Sana::convert(const NamedTensors& /*targets*/, NamedTensors& stored, LoadReport& report) const {
  NamedTensors named;
  for (const auto& [name, tensor] : stored) {
    if (unused(name))
      report.adapted.push_back(name + ": left out");
    else
      named[nvlabs_name(name)] = tensor;
  }
  for (const Joined& joined : kJoined) join(named, joined);
  stored = std::move(named);
}

Fit Sana::fit_from(const io::Json& from) const {
  std::optional<Partition> stored_blocks;
  if (!from.is_null()) stored_blocks = SanaDesign(from.get<SanaOptions>()).partition();
  return [this, stored_blocks](const std::string& name, const at::Tensor& stored) {
    return is_mixing(name) ? fitted_mixing(stored, stored_blocks, SanaDesign(options).partition()) : at::Tensor();
  };
}

}  // namespace mhla::models
