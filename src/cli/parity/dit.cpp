// Parity of the diffusion transformer.
#include "models/dit/dit.hpp"

#include <cmath>

#include "cli/parity/case.hpp"
#include "models/base/weights.hpp"

namespace mhla::cli::parity {
namespace {

models::GeneratorOptions options_of(const Case& parity_case) {
  models::GeneratorOptions options;
  options.preset = "authors";
  const auto size = [&](const char* key, std::int64_t most) { return parity_case.get<std::int64_t>(key, 1, most); };
  const std::int64_t side = size("input_size", 4096);
  options.size = {side, side};
  options.patch = size("patch", side);
  options.channels = size("channels", 1 << 10);
  options.width = size("hidden", 1 << 13);
  options.depth = size("depth", 256);
  options.heads = size("heads", 1 << 10);
  options.classes = size("classes", 1 << 20);
  options.qk_norm = parity_case.has("qk_norm") && parity_case.get<bool>("qk_norm");
  options.cpe = parity_case.has("dwconv") && parity_case.get<bool>("dwconv");
  options.mixing_init = parity_case.has("transform") ? parity_case.get<std::string>("transform") : "linear";
  // block_size is the number of tokens in a block, a square.
  const std::int64_t tokens = size("block_size", side * side);
  const auto piece = std::llround(std::sqrt(static_cast<double>(tokens)));
  if (piece * piece != tokens || side % options.patch != 0 || side / options.patch % piece != 0)
    parity_case.fail(
        "config \"block_size\" is no square of tokens that divides the grid of \"input_size\" and \"patch\"");
  options.blocks = {side / options.patch / piece, side / options.patch / piece};
  return options;
}

}  // namespace

Outputs run_dit(const Case& parity_case) {
  const torch::NoGradGuard no_gradient;
  models::Dit model(options_of(parity_case));
  model.eval();
  Outputs outputs{{"mixing_init", model.mixing_parameters().front().flatten(1).clone()}};
  models::load_tensors(model, parity_case.parameters(), parity_case.file().source());
  const torch::Tensor x = parity_case.tensor("in/x", 4);
  outputs["out"] = model.forward(x, parity_case.indices("in/t", 999), parity_case.indices("in/y", model.null_class()));
  // The first picture at t = 500 as class 4, guided by 4.
  const torch::Tensor first = x.slice(0, 0, 1);
  outputs["cfg_500_class4_scale4"] =
      model.forward_with_cfg(torch::cat({first, first}), torch::tensor({500, 500}, torch::kInt64),
                             torch::tensor({std::int64_t{4}, model.null_class()}), 4.0);
  return outputs;
}

// The plain block, under the names of the original DiT.
Outputs run_dit_softmax_block(const Case& parity_case) {
  const torch::NoGradGuard no_gradient;
  const torch::Tensor x = parity_case.tensor("in/x", 3);
  nn::GridAttentionOptions attention{.dim = parity_case.get<std::int64_t>("hidden", 1, 1 << 13),
                                     .heads = parity_case.get<std::int64_t>("heads", 1, 1 << 10),
                                     .kind = nn::AttentionKind::softmax};
  if (attention.dim % attention.heads != 0) parity_case.fail("config \"heads\" is no divisor of \"hidden\"");
  attention.qkv_bias = true;
  attention.qk_norm = false;
  attention.lepe_side = 0;
  models::DitBlock block(attention, /*cpe=*/false);
  block.eval();
  models::NamedTensors stored;
  for (const auto& [name, tensor] : parity_case.parameters()) {
    constexpr std::string_view kQkv = "attn.qkv.", kProj = "attn.proj.";
    if (name.starts_with(kQkv))
      stored["attn.to_qkv." + name.substr(kQkv.size())] = tensor;
    else if (name.starts_with(kProj))
      stored["attn.to_out.0." + name.substr(kProj.size())] = tensor;
    else
      stored[name] = tensor;
  }
  models::load_tensors(block, stored, parity_case.file().source());
  nn::GatedStream stream(x);
  block.forward(stream, torch::silu(parity_case.tensor("in/c", 2)), {1, x.size(1)});
  return {{"out", stream.value()}};
}

}  // namespace mhla::cli::parity
