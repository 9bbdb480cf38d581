// Options of the text-to-image transformer Sana.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/json.hpp"
#include "nn/attention.hpp"

namespace mhla::models {

struct SanaOptions {
  std::string model = "sana_0.6b";                  // one of sana_names()
  std::vector<std::string> attention = {"linear"};  // linear|mhla|softmax; one for all layers or one per layer
  std::vector<std::int64_t> size = {32, 32};        // height and width of the latents it is made for
  std::vector<std::int64_t> blocks = {4, 4};        // of mhla, per axis
  std::int64_t channels = 32;                       // of the latents
  std::int64_t caption_width = 2304;                // of the text encoder's states
  std::int64_t patch = 1;
  std::int64_t width = 0, depth = 0, heads = 0, cross_heads = 0;  // 0: the model's own
  double mlp_ratio = 2.5;
  bool qk_norm = false;                 // RMSNorm of q and k over all channels, in both kinds of attention
  std::string mixing_init = "uniform";  // how the mixing matrices start; uniform is linear attention
  bool mixing_frozen = false;
  bool recompute = false;  // run each block again in the backward pass instead of keeping its activations

  bool operator==(const SanaOptions&) const = default;
};

// Members that are missing keep their defaults; one that is unknown or of the wrong type is an Error that names it.
void to_json(io::Json& json, const SanaOptions& options);
void from_json(const io::Json& json, SanaOptions& options);

// What a model name and options amount to.
struct SanaDesign {
  // Throws an Error that names the first option that does not work out.
  explicit SanaDesign(const SanaOptions& options);

  double least_elements() const;  // of the model's tensors
  Partition partition() const;    // the grid of tokens in the options' blocks

  SanaOptions options;
  std::int64_t width = 0, depth = 0, heads = 0, cross_heads = 0, mlp_width = 0;
  std::vector<nn::AttentionKind> attention;  // per layer
};

std::vector<std::string> sana_names();  // sana_tiny, sana_0.6b, sana_1.6b

}  // namespace mhla::models
