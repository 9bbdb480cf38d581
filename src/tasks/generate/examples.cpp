// Examples from image files.
#include "tasks/generate/examples.hpp"

#include "tasks/generate/latents.hpp"
#include "tasks/images.hpp"

namespace mhla::tasks {
namespace {

class ImageExamples : public ExampleLoader {
 public:
  explicit ImageExamples(std::unique_ptr<data::ImageLoader> loader) : loader_(std::move(loader)) {}

  std::int64_t size() const override { return loader_->source().size(); }
  std::int64_t batch() const override { return loader_->options().batch; }
  std::int64_t batches() const override { return loader_->batches(); }
  void start(std::int64_t epoch, std::int64_t first_batch) override {
    loader_->start(epoch, first_batch);
    next_batch_ = first_batch;
  }
  std::optional<Examples> next() override {
    auto batch = loader_->next();
    if (!batch) return std::nullopt;
    const auto& options = loader_->options();
    const std::int64_t count = std::min(options.batch, size() - next_batch_++ * options.batch);
    return Examples{batch->images, batch->labels, count * options.rank / options.world};
  }

 private:
  std::unique_ptr<data::ImageLoader> loader_;
  std::int64_t next_batch_ = 0;
};

data::Augmentation augmentation_of(const std::string& name) {
  data::Augmentation augmentation;
  augmentation.flip = name == "flip" ? 0.5 : 0.0;
  augmentation.dihedral = name == "turns";
  return augmentation;
}

}  // namespace

TrainingExamples open_examples(const TrainGenerateOptions& options, const GenerateRecipe& recipe, at::Device device,
                               const train::Communicator& communicator, std::ostream& text) {
  if (holds_latents(options.data)) return open_latents(options, recipe, communicator);
  ImageRequest request{.data = options.data, .cache = options.cache, .accumulate = options.accumulate};
  request.loading.batch = recipe.batch;
  request.held_out_batch = held_out_batch(communicator);
  request.loading.image_size = recipe.model.size;
  request.loading.augmentation = augmentation_of(options.augment);
  request.loading.crop_fraction = 1.0;
  request.loading.seed = options.seed;
  request.loading.threads = options.workers;
  constexpr std::array kHalf = {0.5F, 0.5F, 0.5F};  // from -1 to 1
  request.normalization = [&](const data::ImageSource&) { return data::Normalization{kHalf, kHalf}; };
  TrainingImages images = open_training_images(request, device, communicator, text);
  TrainingExamples examples;
  examples.facts.classes = images.classes();
  examples.size = recipe.model.size;
  examples.description = images.describe();
  examples.training = std::make_unique<ImageExamples>(std::move(images.training));
  if (images.validation) examples.validation = std::make_unique<ImageExamples>(std::move(images.validation));
  return examples;
}

}  // namespace mhla::tasks
