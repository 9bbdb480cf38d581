// Files of trained classifiers: config, names of classes, preprocessing, weights.
#include "io/file.hpp"
#include "models/classifier_file.hpp"
#include "models/classifiers.hpp"
#include "support/target.hpp"

using namespace mhla;

fuzz::Inputs fuzz::seeds() {
  models::ClassifierOptions options;
  options.image_size = {8, 8};
  options.patch = 4;
  options.classes = 2;
  options.blocks = {1, 1};
  options.width = 4;
  options.depth = 1;
  options.heads = 1;
  const fuzz::File made(".made");
  const auto model = models::make_classifier(options);
  models::save_classifier(*model, made.name(), {{"a", "b"}, {}});
  return {io::read_file(made.name())};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::File file(".safetensors");
  const auto& path = file.with(fuzz::bytes_of(data, size));
  fuzz::runs_or_names({file.name()}, [&] {
    const models::LoadedClassifier loaded = models::load_classifier(path);
    const auto& o = loaded.model->options;
    if (o.image_size[0] * o.image_size[1] > 1 << 14) return;
    const torch::NoGradGuard no_gradient;
    const at::Tensor logits = loaded.model->forward(torch::zeros({1, 3, o.image_size[0], o.image_size[1]}));
    fuzz::expect(logits.sizes() == at::IntArrayRef({1, o.classes}), "logits of another shape");
  });
  return 0;
}
