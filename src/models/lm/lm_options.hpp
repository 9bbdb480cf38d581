// Options of language models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/json.hpp"

namespace mhla::models {

struct LmOptions {
  std::string model = "lm_340m";                  // one of lm_names()
  std::vector<std::string> attention = {"mhla"};  // softmax|linear|gla|mhla; one for all layers or one per layer
  std::int64_t vocabulary = 32000;
  std::int64_t width = 0, depth = 0, heads = 0;  // 0: the model's own; softmax has heads of its own
  std::int64_t kv_heads = 0;                     // 0: as many as heads
  std::int64_t mlp_width = 0;                    // 0: 8/3 of the width, rounded up to a multiple of 256
  double key_ratio = 0.5, value_ratio = 1.0;     // keys and values of all heads, as shares of the width; not of softmax
  std::string feature_map = "relu";              // of linear and mhla
  std::int64_t block_size = 64, blocks = 32;     // MHLA: tokens of a block, and M
  std::string beyond = "error";                  // what mhla does with more blocks: the names of BeyondTrained
  double norm_eps = 1e-6;
  double rotary_base = 10000.0;
  bool tied = true;  // the last layer's weight is the embedding
  bool output_gate = true, short_convolution = false;
  std::string mixing_init = "running-mean";  // how the mixing matrices start: the names of MixingInit
  double mixing_sigma = 3.0;                 // of mixing_init "exp"
  bool mixing_frozen = false;
  bool recompute = false;  // run each block again in the backward pass instead of keeping its activations

  bool operator==(const LmOptions&) const = default;
};

// Members that are missing keep their defaults; one that is unknown or of the wrong type is an Error that names it.
void to_json(io::Json& json, const LmOptions& options);
void from_json(const io::Json& json, LmOptions& options);

}  // namespace mhla::models
