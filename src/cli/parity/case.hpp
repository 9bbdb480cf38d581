// A stored case as the functions that run it see it.
#pragma once

#include <fmt/format.h>
#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <string>

#include "io/json.hpp"
#include "mhla/types.hpp"
#include "tensor_io/tensors.hpp"

namespace mhla::cli::parity {

using Outputs = std::map<std::string, torch::Tensor>;

class Case {
 public:
  explicit Case(const std::filesystem::path& path);

  const io::SafeTensors& file() const { return file_; }
  const io::Json& config() const { return config_; }
  torch::Tensor tensor(const std::string& name) const { return io::to_torch(file_, name); }
  torch::Tensor tensor(const std::string& name, std::int64_t axes) const;
  std::map<std::string, torch::Tensor> parameters() const;  // the tensors param/<key> by their keys

  bool has(const char* key) const { return config_.contains(key); }

  template <typename Value>
  Value get(const char* key) const {
    if (!has(key)) fail(fmt::format("config \"{}\" is missing", key));
    try {
      return config_.at(key).get<Value>();
    } catch (const io::Json::exception&) {
      fail(fmt::format("config \"{}\" is {}, which is of the wrong type", key, config_.at(key).dump()));
    }
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(fmt::format("{}: {}", file_.source(), reason));
  }

 private:
  io::SafeTensors file_;
  io::Json config_;
};

// The vision transformer with MHLA: x -> features, logits; and the mixing matrix it starts from.
Outputs run_vit(const Case& parity_case);

// The diffusion transformer with MHLA: x, t, y -> out, and guided; and the plain DiT block.
Outputs run_dit(const Case& parity_case);
Outputs run_dit_softmax_block(const Case& parity_case);

// The image autoencoder: image -> mean, logvar; latent -> decoded.
Outputs run_sd_vae(const Case& parity_case);

// The noise schedule, its respacing, one reverse step and the training loss for a given network output.
Outputs run_diffusion(const Case& parity_case);
// Samplers on a network given by a formula: noise prediction, and rectified flow.
Outputs run_ddpm_sampler(const Case& parity_case);
Outputs run_flow_sampler(const Case& parity_case);

}  // namespace mhla::cli::parity
