// Parity of language models: one attention layer, and whole models under the authors' names or Llama's.
#include "models/lm/lm.hpp"

#include "cli/parity/case.hpp"
#include "models/base/weights.hpp"

namespace mhla::cli::parity {
namespace {

constexpr std::int64_t kMostWidth = 1 << 13, kMostTokens = 1 << 16;

std::int64_t lm_size(const Case& parity_case, const char* key, std::int64_t most) {
  return parity_case.get<std::int64_t>(key, 1, most);
}

models::LmOptions authors_options(const Case& parity_case) {
  models::LmOptions options;
  options.width = lm_size(parity_case, "hidden", kMostWidth);
  options.heads = lm_size(parity_case, "heads", 1 << 10);
  options.key_ratio = parity_case.get("expand_k", 1e-3, 16.0);
  if (parity_case.has("expand_v")) options.value_ratio = parity_case.get("expand_v", 1e-3, 16.0);
  options.feature_map = parity_case.get<std::string>("feature_map");
  options.block_size = lm_size(parity_case, "chunk", 1 << 16);
  options.norm_eps = parity_case.get("eps", 0.0, 1.0);
  return options;
}

models::LmOptions llama_options(const Case& parity_case) {
  models::LmOptions options;
  options.attention = {parity_case.get<std::string>("attention")};
  options.vocabulary = lm_size(parity_case, "vocab_size", 1 << 20);
  options.width = lm_size(parity_case, "hidden_size", kMostWidth);
  options.depth = lm_size(parity_case, "num_hidden_layers", 256);
  options.heads = lm_size(parity_case, "num_attention_heads", 1 << 10);
  options.kv_heads = lm_size(parity_case, "num_key_value_heads", 1 << 10);
  options.mlp_width = lm_size(parity_case, "intermediate_size", 1 << 15);
  options.norm_eps = parity_case.get("rms_norm_eps", 0.0, 1.0);
  options.rotary_base = parity_case.get("rope_theta", 1.0, 1e12);
  options.tied = parity_case.get<bool>("tie_word_embeddings");
  return options;
}

models::LmOptions lm_options_of(const Case& parity_case) {
  if (parity_case.has("names")) {
    const auto names = parity_case.get<std::string>("names");
    if (names != "transformers") parity_case.fail("config \"names\" is \"" + names + "\"; it may be transformers");
    return llama_options(parity_case);
  }
  models::LmOptions options = authors_options(parity_case);
  options.vocabulary = lm_size(parity_case, "vocab", 1 << 20);
  options.depth = lm_size(parity_case, "layers", 256);
  options.tied = !parity_case.file().contains("param/lm_head.weight");
  return options;
}

}  // namespace

Outputs run_lm_layer(const Case& parity_case) {
  const torch::NoGradGuard no_gradient;
  models::LmOptions options = authors_options(parity_case);
  const torch::Tensor x = parity_case.tensor("in/x", 3);
  if (x.size(2) != options.width) parity_case.fail("tensor \"in/x\" is not as wide as config \"hidden\"");
  const torch::Tensor mixing = parity_case.tensor("param/mixing_matrix", 6);
  options.blocks = mixing.size(0);
  const auto layer = nn::make_causal_attention(models::LmDesign(options).attention_options(0));
  models::load_tensors(*layer, parity_case.parameters(), parity_case.file().source());
  return {{"o", layer->forward(x, nn::Line(x.size(1), x.device()))}};
}

Outputs run_lm(const Case& parity_case) {
  const torch::NoGradGuard no_gradient;
  const models::LmDesign design(lm_options_of(parity_case));
  const io::SafeTensors file = parity_case.parameters_as_file();
  check_size(design.least_elements(), file);
  models::Lm model(design);
  load_whole(model, file);
  const torch::Tensor ids = io::to_torch(parity_case.file(), "in/ids");
  if (ids.dim() != 2 || ids.size(1) > kMostTokens) parity_case.fail("tensor \"in/ids\" is not [batch, tokens]");
  return {{"logits", model.forward(ids)}};
}

}  // namespace mhla::cli::parity
