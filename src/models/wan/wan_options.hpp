// Options of video transformers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/json.hpp"

namespace mhla::models {

struct WanOptions {
  std::string model = "wan_1.3b";  // one of wan_names()
  // softmax|linear|mhla; one for all layers or one per layer. hybrid: softmax in every third layer, mhla in the others.
  std::vector<std::string> attention = {"softmax"};
  std::vector<std::int64_t> size = {21, 60, 100};  // frames, height and width of what it is made for, in latents
  std::vector<std::int64_t> blocks = {3, 5, 10};   // number of blocks per axis (M = product)
  std::vector<std::int64_t> patch = {1, 2, 2};
  std::int64_t channels = 16, out_channels = 16;
  std::int64_t text_width = 4096, text_tokens = 512;            // shorter texts are filled up with zeros
  std::int64_t width = 0, depth = 0, heads = 0, mlp_width = 0;  // 0: the model's own
  std::int64_t frequencies = 256;                               // of the time, cosines and sines together
  // Of mhla layers.
  bool gate = false;                  // silu(a linear layer of the input) multiplies the attention's output
  bool lepe = false;                  // a 3x3x3 depthwise convolution of v, added to the attention's output
  std::string normalizer = "none";    // none, paper, authors; the denominator is that of q and k before rotation
  std::string output_norm = "head";   // RMSNorm over a head or all channels, or after the projection: none, head,
                                      // channels, projected
  std::string mixing_init = "paper";  // how the mixing matrices start: the names of MixingInit
  double mixing_sigma = 3.0;          // of mixing_init "exp"
  bool mixing_frozen = false;
  bool recompute = false;  // run each block again in the backward pass instead of keeping its activations

  bool operator==(const WanOptions&) const = default;
};

// Members that are missing keep their defaults; one that is unknown or of the wrong type is an Error that names it.
void to_json(io::Json& json, const WanOptions& options);
void from_json(const io::Json& json, WanOptions& options);

}  // namespace mhla::models
