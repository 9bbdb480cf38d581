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
  const auto side = parity_case.get<std::int64_t>("input_size");
  options.size = {side, side};
  options.patch = parity_case.get<std::int64_t>("patch");
  options.channels = parity_case.get<std::int64_t>("channels");
  options.width = parity_case.get<std::int64_t>("hidden");
  options.depth = parity_case.get<std::int64_t>("depth");
  options.heads = parity_case.get<std::int64_t>("heads");
  options.classes = parity_case.get<std::int64_t>("classes");
  options.qk_norm = parity_case.has("qk_norm") && parity_case.get<bool>("qk_norm");
  options.cpe = parity_case.has("dwconv") && parity_case.get<bool>("dwconv");
  options.mixing_init = parity_case.has("transform") ? parity_case.get<std::string>("transform") : "linear";
  // block_size is the number of tokens in a block, a square.
  const auto tokens = parity_case.get<std::int64_t>("block_size");
  const auto piece = std::llround(std::sqrt(static_cast<double>(std::max<std::int64_t>(tokens, 1))));
  if (options.patch < 1 || options.patch > side || piece * piece != tokens || side % options.patch != 0 ||
      side / options.patch % piece != 0)
    parity_case.fail("config \"block_size\" is no square of tokens that divides the grid of \"input_size\" and \"patch\"");
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
  outputs["out"] = model.forward(x, parity_case.tensor("in/t", 1), parity_case.tensor("in/y", 1));
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
  nn::GridAttentionOptions attention{.dim = parity_case.get<std::int64_t>("hidden"),
                                     .heads = parity_case.get<std::int64_t>("heads"),
                                     .kind = nn::AttentionKind::softmax};
  attention.qkv_bias = true;
  attention.qk_norm = false;
  attention.lepe_side = 0;
  models::DitBlock block(attention, /*cpe=*/false);
  block.eval();
  models::NamedTensors stored;
  for (const auto& [name, tensor] : parity_case.parameters()) {
    if (name.starts_with("attn.qkv.")) stored["attn.to_qkv." + name.substr(9)] = tensor;
    else if (name.starts_with("attn.proj.")) stored["attn.to_out.0." + name.substr(10)] = tensor;
    else stored[name] = tensor;
  }
  models::load_tensors(block, stored, parity_case.file().source());
  return {{"out", block.forward(x, torch::silu(parity_case.tensor("in/c", 2)), {1, x.size(1)})}};
}

}  // namespace mhla::cli::parity
