// Parity cases: what is accepted is computed and compared.
#include "cli/parity/kinds.hpp"
#include "io/json.hpp"
#include "io/safetensors.hpp"
#include "support/target.hpp"

using namespace mhla;

namespace {

using Tensors = std::map<std::string, io::SafeTensor>;

fuzz::Bytes case_of(const io::Json& config, const Tensors& tensors) {
  return io::encode_safetensors(tensors, {{"config", config.dump()}});
}

}  // namespace

fuzz::Inputs fuzz::seeds() {
  static const Bytes zeros(4096);
  const auto tensor = [](std::vector<std::int64_t> shape) {
    std::size_t bytes = 4;
    for (const std::int64_t length : shape) bytes *= static_cast<std::size_t>(length);
    return io::SafeTensor{"F32", std::move(shape), std::span<const std::byte>(zeros).first(bytes)};
  };
  return {case_of({{"kind", "causal_op"}, {"chunk", 2}}, {{"in/q", tensor({1, 5, 2, 3})},
                                                          {"in/k", tensor({1, 5, 2, 3})},
                                                          {"in/v", tensor({1, 5, 2, 4})},
                                                          {"in/mix", tensor({3, 3})},
                                                          {"out/o", tensor({1, 5, 2, 4})}}),
          case_of({{"kind", "mixing_init"}, {"layout", {2, 2}}, {"exp_sigma", 3.0}, {"local_thres", 1.5}},
                  {{"out/init_exp", tensor({4, 4})}, {"out/init_local", tensor({4, 4})}}),
          case_of({{"kind", "vit"},
                   {"patch", 4},
                   {"img", 8},
                   {"piece", 1},
                   {"qk_norm", true},
                   {"classes", 2},
                   {"embed_dim", 4},
                   {"depth", 1},
                   {"heads", 1},
                   {"transform", "linear"},
                   {"exp_sigma", 3.0}},
                  {{"in/x", tensor({1, 3, 8, 8})}, {"out/logits", tensor({1, 2})}}),
          case_of({{"kind", "lm_layer"},
                   {"hidden", 4},
                   {"heads", 1},
                   {"expand_k", 0.5},
                   {"feature_map", "relu"},
                   {"chunk", 2},
                   {"eps", 1e-6}},
                  {{"in/x", tensor({1, 3, 4})},
                   {"out/o", tensor({1, 3, 4})},
                   {"param/mixing_matrix", tensor({2, 2, 1, 1, 1, 1})},
                   {"param/g_norm_swish_gate.weight", tensor({4})},
                   {"param/q_proj.weight", tensor({2, 4})},
                   {"param/k_proj.weight", tensor({2, 4})},
                   {"param/v_proj.weight", tensor({4, 4})},
                   {"param/g_proj.weight", tensor({4, 4})},
                   {"param/o_proj.weight", tensor({4, 4})}})};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::File file(".safetensors");
  const auto& path = file.with(fuzz::bytes_of(data, size));
  fuzz::runs_or_names({file.name(), "layout", "blocks", "sizes", "block_size", "mixing", "batch", "heads", "key_dim",
                       "value_dim", "scale", "patch", "image_size", "width", "depth", "classes", "sigma", "threshold"},
                      [&] { cli::parity::check_case(path); });
  return 0;
}
