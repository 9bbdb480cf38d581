// Parity of the umT5 encoder, under Wan's names or transformers'.
#include "models/umt5/umt5.hpp"

#include "cli/parity/case.hpp"

namespace mhla::cli::parity {

Outputs run_umt5(const Case& parity_case) {
  const torch::NoGradGuard no_gradient;
  const auto size = [&](const char* key, std::int64_t most) { return parity_case.get<std::int64_t>(key, 1, most); };
  models::Umt5Options options;
  options.vocabulary = size("vocab", 1 << 20);
  options.width = size("dim", 1 << 13);
  options.attention_width = size("dim_attn", 1 << 13);
  options.mlp_width = size("dim_ffn", 1 << 15);
  options.heads = size("num_heads", 1 << 10);
  options.depth = size("num_layers", 256);
  options.buckets = size("num_buckets", 1 << 10);
  if (parity_case.get<bool>("shared_pos")) parity_case.fail("config \"shared_pos\" is true; it may be false");
  const io::SafeTensors file = parity_case.parameters_as_file();
  check_size(static_cast<double>(models::umt5_parameters(options)), file);
  models::Umt5 model(options);
  model.eval();
  load_whole(model, file);
  return {{"states",
           model.encode(io::to_torch(parity_case.file(), "in/ids"), io::to_torch(parity_case.file(), "in/mask"))}};
}

}  // namespace mhla::cli::parity
