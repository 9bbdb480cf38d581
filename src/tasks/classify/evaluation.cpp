// Loading of a split, counting, and the attention of some of its images.
#include "tasks/classify/evaluation.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cmath>

#include "mhla/types.hpp"
#include "train/autocast.hpp"

namespace mhla::tasks {
namespace {

data::ImageLoader open_loader(const EvaluationOptions& options, const models::LoadedClassifier& loaded,
                              at::Device device) {
  data::ImageLoaderOptions loading;
  loading.batch = options.batch;
  loading.image_size = loaded.model->options.image_size;
  const models::Preprocessing& pixels = loaded.facts.preprocessing;
  loading.normalization = {pixels.mean, pixels.std};
  loading.crop_fraction = pixels.crop_fraction;
  loading.threads = options.workers;
  loading.pinned = device.is_cuda();
  return {data::open_image_source(options.data, options.split, loaded.facts.classes), loading};
}

// At equal distances in the list.
at::Tensor some_images(data::ImageLoader& loader, std::int64_t count) {
  const std::int64_t every = std::max<std::int64_t>(1, loader.source().size() / count);
  std::vector<at::Tensor> chosen;
  std::int64_t index = 0;
  loader.start(0);
  while (const auto batch = loader.next())
    for (const at::Tensor& image : batch->images.unbind(0))
      if (index++ % every == 0 && static_cast<std::int64_t>(chosen.size()) < count) chosen.push_back(image.clone());
  if (chosen.empty()) throw Error("--attention: none of the images can be read");
  return at::stack(chosen);
}

}  // namespace

ClassifyEvaluation evaluate_classifier(models::LoadedClassifier& loaded, const std::filesystem::path& path,
                                       const EvaluationOptions& options, at::Device device, bool bf16,
                                       std::ostream& text) {
  data::ImageLoader loader = open_loader(options, loaded, device);
  for (const std::string& warning : loader.source().warnings()) text << "note: " << warning << '\n';
  const auto classes = static_cast<std::int64_t>(loader.source().classes().size());
  if (classes != loaded.model->options.classes)
    throw Error(fmt::format("{}: it knows {} classes and not their names, {} has {}", path.string(),
                            loaded.model->options.classes, options.data, classes));
  const at::NoGradGuard no_grad;
  const auto alone = train::alone();
  ClassifyEvaluation evaluation{path.string(), fmt::format("{}, {}", options.data, options.split),
                                loader.source().classes()};
  const auto start = std::chrono::steady_clock::now();
  {
    const train::Autocast autocast(device, bf16);
    evaluation.result = classify_all(*loaded.model, loader, device, *alone);
  }
  if (!std::isfinite(evaluation.result.loss))
    throw Error(fmt::format("{}: its scores on {} are not finite; its weights are too large or damaged", path.string(),
                            evaluation.data));
  evaluation.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.attention_images > 0)
    evaluation.attention =
        models::attention_statistics(*loaded.model, some_images(loader, options.attention_images).to(device));
  return evaluation;
}

}  // namespace mhla::tasks
