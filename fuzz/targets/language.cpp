// Language models: our files with config and weights, and the config.json of transformers, which begins with a brace.
#include "io/file.hpp"
#include "models/base/weights.hpp"
#include "models/lm/transformers_config.hpp"
#include "models/lm_file.hpp"
#include "support/target.hpp"

using namespace mhla;

fuzz::Inputs fuzz::seeds() {
  models::LmOptions options;
  options.attention = {"mhla", "softmax"};
  options.vocabulary = 5;
  options.width = options.mlp_width = 4;
  options.depth = 2;
  options.heads = 1;
  options.blocks = options.block_size = 2;
  const fuzz::File made(".made");
  models::save_model(models::Lm(options), made.name());
  const std::string llama = R"({"model_type": "llama", "vocab_size": 5, "hidden_size": 4, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 4, "rms_norm_eps": 1e-6})";
  const std::string gla = R"({"model_type": "gla", "vocab_size": 5, "hidden_size": 4, "num_hidden_layers": 1,
    "num_heads": 1, "num_kv_heads": null, "expand_k": 0.5, "hidden_ratio": 4, "tie_word_embeddings": true})";
  return {io::read_file(made.name()), fuzz::bytes_of(llama), fuzz::bytes_of(gla)};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::File file(".safetensors");
  if (size > 0 && data[0] == '{') {
    const std::string text(data, data + size);
    fuzz::runs_or_names({"config.json", "language model", " is "}, [&] {
      const io::Json json = io::parse_json(text, "config.json");
      static_cast<void>(models::LmDesign(models::lm_options_of_transformers(json, "config.json")));
    });
    return 0;
  }
  const auto& path = file.with(fuzz::bytes_of(data, size));
  fuzz::runs_or_names({file.name()}, [&] {
    const auto model = models::load_lm(path);
    const torch::NoGradGuard no_gradient;
    const at::Tensor logits = model->forward(torch::zeros({1, 1}, at::kLong));
    fuzz::expect(logits.sizes() == at::IntArrayRef({1, 1, model->options.vocabulary}), "logits of another shape");
  });
  return 0;
}
