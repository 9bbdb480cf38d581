// Options of a video transformer as other programs store it: what a layer is follows from the names and shapes of its
// tensors, what these cannot tell from a config.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/safetensors.hpp"
#include "models/wan/wan_options.hpp"

namespace mhla::models {

using Shapes = std::map<std::string, std::vector<std::int64_t>>;
Shapes shapes_of(const io::SafeTensors& file);

// Names are Wan's or diffusers'. A layer with a mixing matrix is mhla; its gate, convolution and norm are those it has
// tensors for. From the config, as Wan, diffusers and the authors write it; null and missing members are the defaults:
//   num_heads or num_attention_heads (128 channels a head), text_len (512), block_layout ([3, 5, 10]),
//   norm_output (false: no denominator), self_attn_type "linear" for layers without a matrix (softmax).
// Members that do not concern these are left alone. Throws an Error that names what is wrong or missing.
WanOptions wan_options_of(const Shapes& shapes, const io::Json& config);

}  // namespace mhla::models
