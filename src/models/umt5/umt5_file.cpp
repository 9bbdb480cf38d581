// Tensors of the umT5 encoder, brought in layer by layer.
#include "models/umt5/umt5_file.hpp"

#include <fmt/format.h>

#include "mhla/types.hpp"
#include "models/base/weights.hpp"

namespace mhla::models {
namespace {

constexpr const char* kEmbedding = "token_embedding.weight";

std::vector<std::string> stored_names(const std::string& name) { return names_of(name, umt5_weight_names()); }

// One layer as a module, through which the weights of all layers pass; of the embedding, rows come from the file.
class StoredUmt5 : public TextEncoder {
 public:
  StoredUmt5(WeightFiles files, const Umt5Options& options, const TextEncoderPlace& place)
      : files_(std::move(files)), options_(options), place_(place), block_(options),
        norm_(nn::NormKind::rms, options.width, kUmt5NormEps) {
    use(*norm_, weights_of(*norm_, "norm."));
    for (std::int64_t i = 0; i < options.depth && !place.offload; ++i) kept_.push_back(weights_of_layer(i));
  }

  at::Tensor encode(const at::Tensor& ids, const at::Tensor& mask) override {
    check_umt5_tokens(ids, mask, options_);
    const torch::NoGradGuard no_gradient;
    const at::Tensor words = files_.rows(ids.flatten().cpu(), stored_names(kEmbedding)).to(place_.device, place_.type);
    const at::Tensor x = through_umt5_layers(
        words.unflatten(0, ids.sizes()), mask, options_,
        [&](std::int64_t i, const at::Tensor& states, const at::Tensor& buckets, const at::Tensor& unseen) {
          use(*block_, kept_.empty() ? weights_of_layer(i) : kept_[static_cast<std::size_t>(i)]);
          return block_->forward(states, buckets, unseen);
        });
    return norm_->forward(x) * mask.unsqueeze(2).to(x.scalar_type());
  }

 private:
  NamedTensors weights_of(const torch::nn::Module& module, const std::string& prefix) const {
    NamedTensors weights;
    for (const auto& item : module.named_parameters())
      weights[item.key()] =
          files_.tensor(stored_names(prefix + item.key()), item.value().sizes()).to(place_.device, place_.type);
    return weights;
  }
  NamedTensors weights_of_layer(std::int64_t layer) const {
    return weights_of(*block_, fmt::format("blocks.{}.", layer));
  }
  static void use(torch::nn::Module& module, const NamedTensors& weights) {
    for (auto& item : module.named_parameters()) {
      item.value().set_requires_grad(false);
      item.value().set_data(weights.at(item.key()));
    }
  }

  const WeightFiles files_;
  const Umt5Options options_;
  const TextEncoderPlace place_;
  Umt5Block block_;
  nn::Norm norm_;
  std::vector<NamedTensors> kept_;  // of every layer; empty where they come from the file each time
};

}  // namespace

Umt5Options umt5_options_of(const WeightFiles& files) {
  const auto shape = [&](const std::string& name) -> const std::vector<std::int64_t>& {
    const io::SafeTensor* const found = files.find(stored_names(name));
    if (found == nullptr || found->shape.size() != 2)
      throw Error(fmt::format("{}: tensor \"{}\", a matrix of the umT5 encoder, is missing", files.source(), name));
    return found->shape;
  };
  Umt5Options options;
  options.vocabulary = shape(kEmbedding)[0];
  options.width = shape(kEmbedding)[1];
  options.attention_width = shape("blocks.0.attn.q.weight")[0];
  options.mlp_width = shape("blocks.0.ffn.fc1.weight")[0];
  options.buckets = shape("blocks.0.pos_embedding.embedding.weight")[0];
  options.heads = shape("blocks.0.pos_embedding.embedding.weight")[1];
  options.depth = 1;
  while (files.find(stored_names(fmt::format("blocks.{}.norm1.weight", options.depth))) != nullptr) ++options.depth;
  try {
    check_umt5_options(options);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", files.source(), error.what()));
  }
  return options;
}

std::unique_ptr<TextEncoder> load_umt5(const std::filesystem::path& path, const TextEncoderPlace& place) {
  WeightFiles files(path);
  const Umt5Options options = umt5_options_of(files);
  return std::make_unique<StoredUmt5>(std::move(files), options, place);
}

}  // namespace mhla::models
