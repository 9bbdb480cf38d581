// Sizes from shapes, and what a config adds to them.
#include "models/wan/wan_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "models/base/option_checks.hpp"
#include "models/base/weights.hpp"
#include "models/wan/wan.hpp"

namespace mhla::models {
namespace {

constexpr std::int64_t kUsualHead = 128;

// The shape of the tensor with Wan's name `name`, or null.
const std::vector<std::int64_t>* find(const Shapes& shapes, const std::string& name) {
  for (const std::string& candidate : names_of(name, wan_weight_names()))
    if (const auto found = shapes.find(candidate); found != shapes.end()) return &found->second;
  return nullptr;
}

const std::vector<std::int64_t>& shape_at(const Shapes& shapes, const std::string& name, std::size_t axes) {
  const auto* const found = find(shapes, name);
  if (found == nullptr) throw Error(fmt::format("tensor \"{}\" is missing: this is no video transformer", name));
  if (found->size() != axes)
    throw Error(fmt::format("tensor \"{}\" has shape [{}]; it must have {} axes", name, fmt::join(*found, ", "), axes));
  return *found;
}

template <typename Value>
Value member(const io::Json& config, std::initializer_list<const char*> names, Value value) {
  for (const char* name : names)
    if (config.is_object() && config.contains(name) && !config[name].is_null() &&
        !io::read_exactly(config[name], value))
      throw Error(fmt::format("\"{}\" is {}, which is of the wrong type", name, config[name].dump()));
  return value;
}

void set_sizes(WanOptions& options, const Shapes& shapes) {
  const auto& patches = shape_at(shapes, "patch_embedding.weight", 5);
  options.width = patches[0];
  options.channels = patches[1];
  options.patch = {patches[2], patches[3], patches[4]};
  const std::int64_t volume = std::max<std::int64_t>(1, patches[2] * patches[3] * patches[4]);
  options.out_channels = shape_at(shapes, "head.head.weight", 2)[0] / volume;
  options.text_width = shape_at(shapes, "text_embedding.0.weight", 2)[1];
  options.frequencies = shape_at(shapes, "time_embedding.0.weight", 2)[1];
  options.mlp_width = shape_at(shapes, "blocks.0.ffn.0.weight", 2)[0];
  while (find(shapes, fmt::format("blocks.{}.ffn.0.weight", options.depth)) != nullptr) ++options.depth;
}

// The grid of the blocks: that of 81 frames of 480 x 800 pixels as far as these blocks divide it.
void set_blocks(WanOptions& options, const io::Json& config, std::int64_t stored) {
  options.blocks = member(config, {"block_layout"}, options.blocks);
  if (options.blocks.size() != 3) throw Error("\"block_layout\" must have three numbers: frames, height and width");
  std::int64_t count = 1;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    check_range("block_layout", options.blocks[axis], 1, 1 << 16);
    const std::int64_t side = options.blocks[axis] * options.patch[axis];
    options.size[axis] = side * std::max<std::int64_t>(1, options.size[axis] / side);
    count *= options.blocks[axis];
  }
  if (count != stored)
    throw Error(fmt::format("\"block_layout\" is [{}], M = {}, but mixing matrices have {} rows",
                            fmt::join(options.blocks, ", "), count, stored));
}

// Of all layers with a matrix: the first of them speaks for the others.
void set_mhla(WanOptions& options, const Shapes& shapes, const std::string& layer) {
  options.gate = find(shapes, layer + "g.weight") != nullptr;
  options.lepe = find(shapes, layer + "lepe.weight") != nullptr;
  const auto* const norm = find(shapes, layer + "g_norm.weight");
  if (norm != nullptr)
    options.output_norm = *norm == std::vector{options.width} && options.heads > 1 ? "channels" : "head";
  else
    options.output_norm = find(shapes, layer + "out_rmsnorm.weight") != nullptr ? "projected" : "none";
}

}  // namespace

Shapes shapes_of(const io::SafeTensors& file) {
  Shapes shapes;
  for (const auto& [name, tensor] : file.tensors()) shapes[name] = tensor.shape;
  return shapes;
}

WanOptions wan_options_of(const Shapes& shapes, const io::Json& config) {
  WanOptions options;
  set_sizes(options, shapes);
  options.heads =
      member(config, {"num_heads", "num_attention_heads"}, std::max<std::int64_t>(1, options.width / kUsualHead));
  options.text_tokens = member(config, {"text_len"}, options.text_tokens);
  if (member(config, {"norm_output"}, false)) options.normalizer = name(Normalizer::authors);
  const bool linear = member<std::string>(config, {"self_attn_type"}, "") == "linear";
  options.attention.clear();
  bool first = true;
  for (std::int64_t i = 0; i < options.depth; ++i) {
    const std::string layer = fmt::format("blocks.{}.self_attn.", i);
    const auto* const matrix = find(shapes, layer + "block_attn.conv.weight");
    options.attention.emplace_back(matrix != nullptr ? "mhla" : linear ? "linear" : "softmax");
    if (matrix == nullptr || !std::exchange(first, false)) continue;
    set_blocks(options, config, matrix->empty() ? 0 : matrix->front());
    set_mhla(options, shapes, layer);
  }
  return options;
}

}  // namespace mhla::models
