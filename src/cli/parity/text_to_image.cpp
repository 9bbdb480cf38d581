// Parity of what makes pictures from text: the text encoder, the transformer and the autoencoder.
#include "cli/parity/case.hpp"
#include "models/base/weights.hpp"
#include "models/dcae/dcae.hpp"
#include "models/gemma2/gemma2.hpp"
#include "models/sana/sana.hpp"

namespace mhla::cli::parity {
namespace {

template <typename Model>
void load(Model& model, const Case& parity_case) {
  model.eval();
  models::LoadReport report;
  models::NamedTensors stored = parity_case.parameters();
  model.convert(models::named_tensors(model), stored, report);
  models::load_tensors(model, stored, parity_case.file().source());
}

// Of a config of diffusers.
models::SanaOptions sana_options(const Case& parity_case, const at::Tensor& x) {
  const auto number = [&](const char* key, std::int64_t most) { return parity_case.get<std::int64_t>(key, 1, most); };
  models::SanaOptions options;
  options.attention = {parity_case.get<std::string>("attention")};
  options.size = {x.size(2), x.size(3)};
  options.channels = number("in_channels", 1024);
  options.caption_width = number("caption_channels", 1 << 16);
  options.patch = number("patch_size", 64);
  options.heads = number("num_attention_heads", 4096);
  options.cross_heads = number("num_cross_attention_heads", 4096);
  options.width = options.heads * number("attention_head_dim", 4096);
  options.depth = number("num_layers", 1024);
  options.mlp_ratio = parity_case.get("mlp_ratio", 0.01, 64.0);
  return options;
}

}  // namespace

Outputs run_gemma2(const Case& parity_case) {
  const torch::NoGradGuard no_gradient;
  models::Gemma2 model(parity_case.config().get<models::Gemma2Options>());
  load(model, parity_case);
  return {{"states", model.forward(parity_case.indices("in/ids", model.options.vocab_size - 1, 2),
                                   parity_case.indices("in/mask", 1, 2))}};
}

Outputs run_sana(const Case& parity_case) {
  const torch::NoGradGuard no_gradient;
  const at::Tensor x = parity_case.tensor("in/x", 4);
  models::Sana model(sana_options(parity_case, x));
  load(model, parity_case);
  const models::SanaText text = model.text(parity_case.tensor("in/text", 3), parity_case.indices("in/mask", 1, 2));
  return {{"velocity", model.forward(x, parity_case.tensor("in/t", 1), text)}};
}

Outputs run_dcae(const Case& parity_case) {
  const torch::NoGradGuard no_gradient;
  models::Dcae model(parity_case.config().get<models::DcaeOptions>());
  load(model, parity_case);
  return {{"encoded", model.encode(parity_case.tensor("in/image", 4))},
          {"decoded", model.decode(parity_case.tensor("in/latent", 4))}};
}

}  // namespace mhla::cli::parity
