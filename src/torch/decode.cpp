// torch.ops.mhla.decode_step and decode_open: mhla/decode.hpp on tensors. Not differentiable.
#include "mhla/decode.hpp"

#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include <array>
#include <string>

#include "torch/execution.hpp"
#include "torch/tensors.hpp"

namespace mhla::dispatch::decode {
namespace {

// The tensors of DecodeMemory in their order; those a state does not have are empty.
enum Part { kS, kZ, kP, kPz, kDiagonal, kFoldedS, kFoldedZ, kK, kV, kTokens, kArrivals, kParts };
constexpr std::array<const char*, kParts> kNames{"S",        "z", "P", "P_z",    "diagonal", "folded_S",
                                                 "folded_z", "k", "v", "tokens", "arrivals"};

struct Settings {
  std::int64_t heads, max_tokens;
  std::string_view feature_map, normalizer, beyond;
  double scale, eps, feature_eps;
};

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

void check_memory(const DecodeConfig& c, at::TensorList memory) {
  const bool normalized = c.options.normalizer != Normalizer::none;
  const std::array<std::vector<std::int64_t>, kParts> shapes{{
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
  const at::ScalarType element = scalar_type(c.dtype), summary = scalar_type(c.summary_dtype),
                       accumulated = scalar_type(accumulation_type(c.dtype));
  const std::array<at::ScalarType, kParts> types{summary,     accumulated, summary,     accumulated,
                                                 accumulated, accumulated, accumulated, element,
                                                 element,     at::kLong,   at::kInt};
  for (std::size_t part = 0; part < kParts; ++part) {
    const bool absent = (!normalized && (part == kZ || part == kPz || part == kFoldedZ)) ||
                        (!c.folds() && (part == kFoldedS || part == kFoldedZ));
    const std::string argument = std::string("memory.") + kNames[part];
    check_device(memory[part], argument, memory[kK].device(), "that of memory.k, ");
    check_dtype(memory[part], argument, types[part]);
    check_shape(memory[part], argument, absent ? at::IntArrayRef{0} : at::IntArrayRef(shapes[part]));
    if (!memory[part].is_contiguous()) refuse(argument, " is not contiguous; it must be");
  }
}

DecodeMemory pointers(at::TensorList memory) {
  const auto data = [&](Part part) { return memory[part].numel() == 0 ? nullptr : memory[part].mutable_data_ptr(); };
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

void check_step(const at::Tensor& x, const char* argument, const DecodeConfig& c, const at::Tensor& like,
                std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
  check_tokens(x, argument);
  check_device(x, argument, like.device(), "that of memory.k, ");
  check_dtype(x, argument, scalar_type(c.dtype));
  check_shape(x, argument, at::IntArrayRef({c.batch, tokens, heads, dim}));
}

at::Tensor step_device(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mixing,
                       at::TensorList memory, std::int64_t max_tokens, std::string_view feature_map,
                       std::string_view normalizer, double scale, double eps, double feature_eps,
                       std::string_view beyond) {
  check_tokens(q, "q");
  const DecodeConfig config =
      config_of(mixing, memory, {q.size(2), max_tokens, feature_map, normalizer, beyond, scale, eps, feature_eps});
  check_memory(config, memory);
  const std::int64_t tokens = q.size(1);
  check_step(q, "q", config, memory[kK], tokens, config.heads, config.key_dim);
  check_step(k, "k", config, memory[kK], tokens, config.kv_heads, config.key_dim);
  check_step(v, "v", config, memory[kK], tokens, config.kv_heads, config.value_dim);
  TorchExecution execution(q);
  const at::Tensor matrix = accumulated(mixing, config, q);
  at::Tensor o = at::empty({config.batch, tokens, config.heads, config.value_dim}, q.options());
  mhla::decode_step(config, tokens,
                    {.q = const_view(q),
                     .k = const_view(k),
                     .v = const_view(v),
                     .o = mutable_view(o),
                     .mixing = matrix.const_data_ptr(),
                     .memory = pointers(memory),
                     .run = execution.run(0)});
  return o;
}

at::Tensor step_meta(const at::Tensor& q, const at::Tensor& /*k*/, const at::Tensor& v, const at::Tensor& /*mixing*/,
                     at::TensorList /*memory*/, std::int64_t /*max_tokens*/, std::string_view /*feature_map*/,
                     std::string_view /*normalizer*/, double /*scale*/, double /*eps*/, double /*feature_eps*/,
                     std::string_view /*beyond*/) {
  check_tokens(q, "q");
  check_tokens(v, "v");
  return at::empty_symint({q.sym_size(0), q.sym_size(1), q.sym_size(2), v.sym_size(3)}, q.options());
}

void open_device(const at::Tensor& mixing, at::TensorList memory, std::int64_t heads, std::int64_t max_tokens,
                 std::string_view normalizer, std::string_view beyond) {
  const DecodeConfig config =
      config_of(mixing, memory, {heads, max_tokens, "identity", normalizer, beyond, 1.0, 0.0, 0.0});
  check_memory(config, memory);
  TorchExecution execution(memory[kK]);
  const at::Tensor matrix = accumulated(mixing, config, memory[kK]);
  mhla::decode_open(config, {.q = {},
                             .k = {},
                             .v = {},
                             .o = {},
                             .mixing = matrix.const_data_ptr(),
                             .memory = pointers(memory),
                             .run = execution.run(0)});
}

void open_meta(const at::Tensor& /*mixing*/, at::TensorList /*memory*/, std::int64_t /*heads*/,
               std::int64_t /*max_tokens*/, std::string_view /*normalizer*/, std::string_view /*beyond*/) {}

TORCH_LIBRARY_FRAGMENT(mhla, library) {
  library.def(
      "decode_step(Tensor q, Tensor k, Tensor v, Tensor mixing, Tensor(a!)[] memory, int max_tokens=0, str "
      "feature_map=\"relu\", str normalizer=\"paper\", float scale=1.0, float eps=1e-06, float feature_eps=0.0, str "
      "beyond=\"error\") -> Tensor",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "decode_open(Tensor mixing, Tensor(a!)[] memory, int heads, int max_tokens=0, str normalizer=\"paper\", str "
      "beyond=\"error\") -> ()",
      {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(mhla, CPU, library) {
  library.impl("decode_step", &step_device);
  library.impl("decode_open", &open_device);
}

TORCH_LIBRARY_IMPL(mhla, CUDA, library) {
  library.impl("decode_step", &step_device);
  library.impl("decode_open", &open_device);
}

TORCH_LIBRARY_IMPL(mhla, Meta, library) {
  library.impl("decode_step", &step_meta);
  library.impl("decode_open", &open_meta);
}

TORCH_LIBRARY_IMPL(mhla, Autograd, library) {
  library.impl("decode_step", torch::autograd::autogradNotImplementedFallback());
  library.impl("decode_open", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace mhla::dispatch::decode
