// A stored case as the functions that run it see it.
#pragma once

#include <fmt/format.h>
#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <string>

#include "io/json.hpp"
#include "mhla/types.hpp"
#include "models/base/model.hpp"
#include "tensor_io/tensors.hpp"

namespace mhla::cli::parity {

using Outputs = std::map<std::string, torch::Tensor>;

class Case {
 public:
  explicit Case(const std::filesystem::path& path);

  const io::SafeTensors& file() const { return file_; }
  torch::Tensor tensor(const std::string& name) const;  // of floating-point numbers, all finite
  const io::Json& config() const { return config_; }
  torch::Tensor tensor(const std::string& name, std::int64_t axes) const;
  // int64, each 0 to `most`.
  torch::Tensor indices(const std::string& name, std::int64_t most, std::int64_t axes = 1) const;
  std::map<std::string, torch::Tensor> parameters() const;                   // the tensors param/<key> by their keys
  io::SafeTensors parameters_as_file(const std::string& prefix = "") const;  // those param/<prefix><key> by <key>

  bool has(const char* key) const { return config_.contains(key); }

  const io::Json& member(const char* key) const {
    if (!has(key)) fail(fmt::format("config \"{}\" is missing", key));
    return config_.at(key);
  }
  template <typename Value>
  Value get(const char* key) const {
    Value value{};
    if (!io::read_exactly(member(key), value))
      fail(fmt::format("config \"{}\" is {}, which is of the wrong type", key, member(key).dump()));
    return value;
  }

  // Numbers within limits.
  template <typename Value>
  Value get(const char* key, Value least, Value most) const {
    const auto value = get<Value>(key);
    check(key, value, least, most);
    return value;
  }
  template <typename Value>
  void check(const char* key, Value value, Value least, Value most) const {
    if (!(value >= least && value <= most))
      fail(fmt::format("config \"{}\" is {}; it may be {} to {}", key, value, least, most));
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(fmt::format("{}: {}", file_.source(), reason));
  }

 private:
  io::SafeTensors file_;
  io::Json config_;
};

// Refuses a model of at least so many elements, before it takes its memory, where the file has fewer.
void check_size(double least_elements, const io::SafeTensors& file);
// All tensors of the model from the file, which has no others, under any names the model understands.
void load_whole(models::Model& model, const io::SafeTensors& file);

// The vision transformer with MHLA: x -> features, logits; and the mixing matrix it starts from.
Outputs run_vit(const Case& parity_case);

// The diffusion transformer with MHLA: x, t, y -> out, and guided; and the plain DiT block.
Outputs run_dit(const Case& parity_case);
Outputs run_dit_softmax_block(const Case& parity_case);

// Gated linear attention: q, k, v, log_decay -> o, state.
Outputs run_gla_op(const Case& parity_case);

// Language models: x -> o of an attention layer; ids -> logits of a model.
Outputs run_lm_layer(const Case& parity_case);
Outputs run_lm(const Case& parity_case);

// The video transformer: x, t, context or text -> out or velocity.
Outputs run_wan(const Case& parity_case);

// The text encoder: ids, mask -> states.
Outputs run_umt5(const Case& parity_case);

// The video autoencoder: video -> encoded; latent -> decoded. And a whole video: noise, texts -> latent, frames.
Outputs run_wan_vae(const Case& parity_case);
Outputs run_wan_pipeline(const Case& parity_case);

// The image autoencoder: image -> mean, logvar; latent -> decoded.
Outputs run_sd_vae(const Case& parity_case);

// Text to image: ids, mask -> states; x, t, text, mask -> velocity; image -> encoded and latent -> decoded.
Outputs run_gemma2(const Case& parity_case);
Outputs run_sana(const Case& parity_case);
Outputs run_dcae(const Case& parity_case);

// The noise schedule, its respacing, one reverse step and the training loss for a given network output.
Outputs run_diffusion(const Case& parity_case);
// Samplers on a network given by a formula: noise prediction, and rectified flow.
Outputs run_ddpm_sampler(const Case& parity_case);
Outputs run_flow_sampler(const Case& parity_case);

}  // namespace mhla::cli::parity
