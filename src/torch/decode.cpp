// torch.ops.mhla.decode_step and decode_open: mhla/decode.hpp on tensors. Not differentiable.
#include "mhla/decode.hpp"

#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include "torch/decode_memory.hpp"
#include "torch/execution.hpp"
#include "torch/tensors.hpp"

namespace mhla::dispatch::decode {
namespace {

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
                     .mixing = data_of(matrix),
                     .memory = pointers(memory),
                     .run = execution.run(0)});
  return o;
}

// Beside one meta tensor the dispatcher takes all for meta tensors.
void check_meta(const at::Tensor& like, const char* whose, const at::Tensor& mixing, at::TensorList memory) {
  check_device(mixing, "mixing", like.device(), whose);
  for (const at::Tensor& part : memory) check_device(part, "memory", like.device(), whose);
}

at::Tensor step_meta(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mixing,
                     at::TensorList memory, std::int64_t /*max_tokens*/, std::string_view /*feature_map*/,
                     std::string_view /*normalizer*/, double /*scale*/, double /*eps*/, double /*feature_eps*/,
                     std::string_view /*beyond*/) {
  check_tokens(q, "q");
  check_tokens(v, "v");
  check_device(k, "k", q.device(), "that of q, ");
  check_device(v, "v", q.device(), "that of q, ");
  check_meta(q, "that of q, ", mixing, memory);
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
                             .mixing = data_of(matrix),
                             .memory = pointers(memory),
                             .run = execution.run(0)});
}

void open_meta(const at::Tensor& mixing, at::TensorList memory, std::int64_t /*heads*/, std::int64_t /*max_tokens*/,
               std::string_view /*normalizer*/, std::string_view /*beyond*/) {
  check_meta(mixing, "that of mixing, ", mixing, memory);
}

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
