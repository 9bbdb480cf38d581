// Parity of the vision transformer.
#include "models/vit/vit.hpp"

#include "cli/parity/case.hpp"
#include "models/base/weights.hpp"
#include "models/classifiers.hpp"

namespace mhla::cli::parity {

Outputs run_vit(const Case& parity_case) {
  const auto size = [&](const char* key) { return parity_case.get<std::int64_t>(key, 1, 1 << 16); };
  const std::int64_t patch = size("patch"), side = size("img"), piece = size("piece");
  if (side % (patch * piece) != 0) parity_case.fail("config \"img\" is not a multiple of \"patch\" times \"piece\"");
  if (!parity_case.get<bool>("qk_norm")) parity_case.fail("config \"qk_norm\" is false; it must be true");
  const std::int64_t blocks = side / (patch * piece);
  models::ClassifierOptions options;
  options.preset = "authors";
  options.image_size = {side, side};
  options.patch = patch;
  options.classes = size("classes");
  options.blocks = {blocks, blocks};
  options.width = size("embed_dim");
  options.depth = size("depth");
  options.heads = size("heads");
  options.mixing_init = parity_case.get<std::string>("transform");
  options.mixing_sigma = parity_case.get("exp_sigma", 1e-6, 1e6);

  const torch::NoGradGuard no_gradient;
  const auto model = models::make_classifier_of(parity_case.file(), options);
  auto& vit = dynamic_cast<models::Vit&>(*model);
  vit.eval();
  Outputs outputs{{"mixing_init", vit.mixing_matrices().front().clone()}};
  models::load_tensors(vit, parity_case.parameters(), parity_case.file().source());
  const torch::Tensor x = parity_case.tensor("in/x", 4);
  outputs["features"] = vit.features(x).index_select(1, torch::tensor(vit.design.partition().block_order()));
  outputs["logits"] = vit.forward(x);
  return outputs;
}

}  // namespace mhla::cli::parity
