// Parity of the video transformer, under the authors' names or diffusers'.
#include "models/wan/wan.hpp"

#include "cli/parity/case.hpp"
#include "models/base/weights.hpp"
#include "models/wan/wan_config.hpp"

namespace mhla::cli::parity {
namespace {

// What shapes do not tell, in the words of published configs.
io::Json wan_config(const Case& parity_case, std::int64_t text_tokens) {
  io::Json config = {{"text_len", text_tokens}};
  const bool diffusers = parity_case.has("names");
  config["num_heads"] = parity_case.get<std::int64_t>(diffusers ? "num_attention_heads" : "heads", 1, 1 << 10);
  if (diffusers) return config;
  config["block_layout"] = parity_case.member("block_layout");
  config["norm_output"] = parity_case.get<bool>("normalize");
  return config;
}

}  // namespace

Outputs run_wan(const Case& parity_case) {
  const torch::NoGradGuard no_gradient;
  const bool diffusers = parity_case.has("names");
  std::vector<torch::Tensor> states;
  if (diffusers)
    states = parity_case.tensor("in/text", 3).unbind(0);
  else
    states = {parity_case.tensor("in/context", 2)};
  const std::int64_t text_tokens =
      diffusers ? parity_case.tensor("in/text").size(1) : parity_case.get<std::int64_t>("text_len", 1, 1 << 16);
  const io::SafeTensors file = parity_case.parameters_as_file();
  const models::WanDesign design(models::wan_options_of(models::shapes_of(file), wan_config(parity_case, text_tokens)));
  check_size(design.least_elements(), file);
  models::Wan model(design);
  model.eval();
  load_whole(model, file);
  const torch::Tensor velocity =
      model.forward(parity_case.tensor("in/x", 5), parity_case.tensor("in/t", 1), model.text(states));
  return {{diffusers ? "velocity" : "out", velocity}};
}

}  // namespace mhla::cli::parity
