// config.json of Llama's and the authors' models.
#include "models/lm/transformers_config.hpp"

#include <fmt/format.h>

#include <vector>

#include "mhla/types.hpp"

namespace mhla::models {
namespace {

class TransformersConfig {
 public:
  TransformersConfig(const io::Json& json, const std::string& source) : json_(json), source_(source) {
    if (!json.is_object()) fail("it is not an object");
  }

  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }

  template <typename Value>
  Value get(const char* key) const {
    Value value{};
    if (!json_.contains(key)) fail(fmt::format("\"{}\" is missing", key));
    if (!io::read_exactly(json_[key], value))
      fail(fmt::format("\"{}\" is {}, which is of the wrong type", key, json_[key].dump()));
    return value;
  }
  template <typename Value>
  Value get(const char* key, const Value& otherwise) const {
    return has(key) ? get<Value>(key) : otherwise;
  }

  // What other values than these would mean is not known here.
  void require(const char* key, const std::vector<io::Json>& known) const {
    if (!has(key)) return;
    for (const io::Json& value : known)
      if (json_[key] == value) return;
    fail(fmt::format("\"{}\" is {}, which this library cannot do", key, json_[key].dump()));
  }

  [[noreturn]] void fail(const std::string& reason) const { throw Error(fmt::format("{}: {}", source_, reason)); }

 private:
  const io::Json& json_;
  const std::string& source_;
};

LmOptions common_options(const TransformersConfig& config) {
  LmOptions options;
  options.vocabulary = config.get<std::int64_t>("vocab_size");
  options.width = config.get<std::int64_t>("hidden_size");
  options.depth = config.get<std::int64_t>("num_hidden_layers");
  options.tied = config.get("tie_word_embeddings", false);
  config.require("hidden_act", {"silu", "swish"});
  return options;
}

LmOptions llama_options(const TransformersConfig& config) {
  LmOptions options = common_options(config);
  options.attention = {"softmax"};
  options.heads = config.get<std::int64_t>("num_attention_heads");
  options.kv_heads = config.get("num_key_value_heads", options.heads);
  options.mlp_width = config.get<std::int64_t>("intermediate_size");
  options.norm_eps = config.get("rms_norm_eps", options.norm_eps);
  options.rotary_base = config.get("rope_theta", options.rotary_base);
  for (const char* bias : {"attention_bias", "mlp_bias"}) config.require(bias, {false});
  for (const char* other : {"rope_scaling", "sliding_window"}) config.require(other, {});
  if (options.heads > 0) config.require("head_dim", {options.width / options.heads});
  return options;
}

LmOptions gla_options(const TransformersConfig& config) {
  LmOptions options = common_options(config);
  const auto extends = config.get("attn_extends", std::string("mhla"));
  if (extends != "mhla" && extends != "gla")
    config.fail("\"attn_extends\" is \"" + extends + "\"; known are mhla, gla");
  options.attention = {extends};
  options.heads = config.get<std::int64_t>("num_heads");
  options.kv_heads = config.get("num_kv_heads", options.heads);
  options.key_ratio = config.get("expand_k", options.key_ratio);
  options.value_ratio = config.get("expand_v", options.value_ratio);
  options.mlp_width = config.get("intermediate_size", std::int64_t{0});
  options.feature_map = config.get("feature_map", options.feature_map);
  options.norm_eps = config.get("norm_eps", options.norm_eps);
  options.output_gate = config.get("use_output_gate", true);
  options.short_convolution = config.get("use_short_conv", false);
  config.require("hidden_ratio", {4});
  config.require("conv_size", {4});
  config.require("elementwise_affine", {true});
  return options;
}

}  // namespace

LmOptions lm_options_of_transformers(const io::Json& json, const std::string& source) {
  const TransformersConfig config(json, source);
  const auto type = config.get<std::string>("model_type");
  if (type == "llama" || type == "mistral") return llama_options(config);
  if (type == "gla") return gla_options(config);
  config.fail(fmt::format("\"model_type\" is \"{}\"; known are llama, mistral and gla", type));
}

}  // namespace mhla::models
