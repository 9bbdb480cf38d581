// Checks that options of all families share. Each throws an Error that names the option.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/attention.hpp"

namespace mhla::models {

void check_pair_of_sizes(const char* name, const std::vector<std::int64_t>& values);  // height and width
void check_range(const char* name, std::int64_t value, std::int64_t least, std::int64_t most);
// Of a tensor of pictures or latents: [batch, channels, height, width], both sides multiples of `factor`.
void check_images(const char* name, const at::Tensor& x, std::int64_t channels, std::int64_t factor);
void check_preset(const std::string& preset);
void check_mixing(const std::string& mixing, const std::string& preset);
void check_attention(const std::vector<std::string>& attention);

// Attention layer by layer, of a model with `depth` layers; one name is for all of them.
std::vector<std::string> names_per_layer(const std::vector<std::string>& attention, std::int64_t depth);
std::vector<nn::AttentionKind> attention_per_layer(const std::vector<std::string>& attention, std::int64_t depth);

}  // namespace mhla::models
