// torch.ops.mhla.decode_save, decode_restore and saved_device: decoding states as bytes (core/saved_decode.hpp).
#include <torch/library.h>

#include <string>

#include "core/saved_decode.hpp"
#include "torch/decode_memory.hpp"

namespace mhla::dispatch::decode {
namespace {

std::span<const std::byte> span_of(const at::Tensor& bytes) {
  if (bytes.scalar_type() != at::kByte || bytes.dim() != 1 || !bytes.is_cpu() || !bytes.is_contiguous())
    refuse("bytes is a ", bytes.scalar_type(), " tensor with ", bytes.dim(), " axes on ", bytes.device(),
           "; it must be contiguous uint8 with 1 on cpu");
  return {static_cast<const std::byte*>(data_of(bytes)), bytes.nbytes()};
}

at::Tensor save(const at::Tensor& mixing, at::TensorList memory, std::int64_t heads, std::int64_t max_tokens,
                std::string_view feature_map, std::string_view normalizer, double scale, double eps, double feature_eps,
                std::string_view beyond) {
  const DecodeConfig config =
      config_of(mixing, memory, {heads, max_tokens, feature_map, normalizer, beyond, scale, eps, feature_eps});
  check_memory(config, memory);
  std::vector<at::Tensor> on_host;
  on_host.reserve(kParts);
  for (const at::Tensor& part : memory) on_host.push_back(part.cpu());
  const at::Tensor matrix = accumulated(mixing, config, memory[kK]).cpu();
  const std::vector<std::byte> bytes = save_decode(config, data_of(matrix), pointers(on_host));
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(mutable_data_of(tensor)));
  return tensor;
}

using Restored = std::tuple<at::Tensor, std::vector<at::Tensor>, std::int64_t, std::int64_t, std::string, std::string,
                            double, double, double, std::string>;

Restored restore(const at::Tensor& bytes) {
  auto [state, in] = open_saved_state(span_of(bytes));
  const DecodeConfig config = decode_config_of(state);
  std::vector<std::int64_t> sizes{config.mixing_blocks, config.mixing_blocks};
  if (config.mixing_per_head) sizes.insert(sizes.begin(), config.heads);
  at::Tensor mixing = at::empty(sizes, scalar_type(accumulation_type(config.dtype)));
  std::vector<at::Tensor> memory = empty_memory(config);
  load_decode(state, in, mutable_data_of(mixing), pointers(memory));
  const Options& options = config.options;
  return {std::move(mixing),
          std::move(memory),
          config.heads,
          config.max_tokens,
          std::string(name(options.feature_map)),
          std::string(name(options.normalizer)),
          options.scale,
          options.eps,
          options.feature_eps,
          std::string(name(config.beyond))};
}

// The kind of device whose state was saved.
std::string saved_device(const at::Tensor& bytes) {
  return open_saved_state(span_of(bytes)).first.open == OpenBlock::rows ? "cuda" : "cpu";
}

TORCH_LIBRARY_FRAGMENT(mhla, library) {
  library.def(
      "decode_save(Tensor mixing, Tensor[] memory, int heads, int max_tokens, str feature_map, str normalizer, float "
      "scale, float eps, float feature_eps, str beyond) -> Tensor",
      &save);
  library.def(
      "decode_restore(Tensor bytes) -> (Tensor mixing, Tensor[] memory, int heads, int max_tokens, str feature_map, "
      "str normalizer, float scale, float eps, float feature_eps, str beyond)",
      &restore);
  library.def("saved_device(Tensor bytes) -> str", &saved_device);
}

}  // namespace
}  // namespace mhla::dispatch::decode
