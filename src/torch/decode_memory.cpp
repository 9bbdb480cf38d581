// Shapes and types of decode_memory.hpp.
#include "torch/decode_memory.hpp"

#include <string>

#include "torch/execution.hpp"

namespace mhla::dispatch::decode {
namespace {

constexpr std::array<const char*, kParts> kNames{"S",        "z", "P", "P_z",    "diagonal", "folded_S",
                                                 "folded_z", "k", "v", "tokens", "arrivals"};

std::array<std::vector<std::int64_t>, kParts> shapes_of(const DecodeConfig& c) {
  std::array<std::vector<std::int64_t>, kParts> shapes{{
      {c.batch, c.kv_heads, c.slots(), c.key_dim, c.value_dim},
      {c.batch, c.kv_heads, c.slots(), c.key_dim},
      {c.batch, c.mixed_heads(), c.key_dim, c.value_dim},
      {c.batch, c.mixed_heads(), c.key_dim},
      {c.batch, c.mixed_heads()},
      {c.batch, c.kv_heads, c.key_dim, c.value_dim},
      {c.batch, c.kv_heads, c.key_dim},
      {c.batch, c.kv_heads, c.block_size, c.key_dim},
      {c.batch, c.kv_heads, c.block_size, c.value_dim},
      {c.batch},
      {c.batch, c.kv_heads + 1},
  }};
  if (c.options.normalizer == Normalizer::none)
    for (const Part part : {kZ, kPz, kFoldedZ}) shapes[part] = {0};
  if (!c.folds())
    for (const Part part : {kFoldedS, kFoldedZ}) shapes[part] = {0};
  return shapes;
}

std::array<at::ScalarType, kParts> types_of(const DecodeConfig& c) {
  const at::ScalarType element = scalar_type(c.dtype), summary = scalar_type(c.summary_dtype),
                       sum = scalar_type(accumulation_type(c.dtype));
  return {summary, sum, summary, sum, sum, sum, sum, element, element, at::kLong, at::kInt};
}

}  // namespace

DecodeConfig config_of(const at::Tensor& mixing, at::TensorList memory, const Settings& settings) {
  if (memory.size() != kParts) refuse("memory has ", memory.size(), " tensors; it must have ", int{kParts});
  for (const Part part : {kK, kV})
    if (memory[part].dim() != 4)
      refuse("memory.", kNames[part], " has ", memory[part].dim(),
             " axes; it must be 4, [batch, kv heads, block size, width]");
  check_matrix(mixing, "mixing", settings.heads);
  const at::Tensor& k = memory[kK];
  if (k.size(2) < 1) refuse("memory.k has block size 0 (axis 2); it must be at least 1");
  DecodeConfig config;
  config.dtype = dtype_of(k, "memory.k");
  config.batch = k.size(0);
  config.heads = settings.heads;
  config.kv_heads = k.size(1);
  config.key_dim = k.size(3);
  config.value_dim = memory[kV].size(3);
  config.block_size = k.size(2);
  config.mixing_blocks = mixing.size(-1);
  config.mixing_per_head = mixing.dim() == 3;
  config.options = {.feature_map = parse_feature_map(settings.feature_map),
                    .normalizer = parse_normalizer(settings.normalizer),
                    .masking = Masking::token_causal,
                    .scale = settings.scale,
                    .eps = settings.eps,
                    .feature_eps = settings.feature_eps};
  config.beyond = parse_beyond_trained(settings.beyond);
  config.device = mhla_device(k);
  config.summary_dtype = dtype_of(memory[kS], "memory.S");
  config.max_tokens = settings.max_tokens;
  return config;
}

void check_memory(const DecodeConfig& config, at::TensorList memory) {
  const auto shapes = shapes_of(config);
  const auto types = types_of(config);
  for (std::size_t part = 0; part < kParts; ++part) {
    const std::string argument = std::string("memory.") + kNames[part];
    check_device(memory[part], argument, memory[kK].device(), "that of memory.k, ");
    check_dtype(memory[part], argument, types[part]);
    check_shape(memory[part], argument, at::IntArrayRef(shapes[part]));
    if (!memory[part].is_contiguous()) refuse(argument, " is not contiguous; it must be");
  }
}

std::vector<at::Tensor> empty_memory(const DecodeConfig& config) {
  const auto shapes = shapes_of(config);
  const auto types = types_of(config);
  std::vector<at::Tensor> memory;
  memory.reserve(kParts);
  for (std::size_t part = 0; part < kParts; ++part) memory.push_back(at::zeros(shapes[part], types[part]));
  return memory;
}

DecodeMemory pointers(at::TensorList memory) {
  const auto data = [&](Part part) { return memory[part].numel() == 0 ? nullptr : mutable_data_of(memory[part]); };
  return {.S = data(kS),
          .z = data(kZ),
          .P = data(kP),
          .P_z = data(kPz),
          .diagonal = data(kDiagonal),
          .folded_S = data(kFoldedS),
          .folded_z = data(kFoldedZ),
          .k = data(kK),
          .v = data(kV),
          .tokens = static_cast<std::int64_t*>(data(kTokens)),
          .arrivals = static_cast<std::int32_t*>(data(kArrivals))};
}

at::Tensor accumulated(const at::Tensor& mixing, const DecodeConfig& config, const at::Tensor& like) {
  check_device(mixing, "mixing", like.device(), "that of memory.k, ");
  return mixing.to(scalar_type(accumulation_type(config.dtype))).contiguous();
}

}  // namespace mhla::dispatch::decode
