// The recipes.
#include "tasks/classify/recipe.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tasks/usage_error.hpp"

namespace mhla::tasks {

ClassifyRecipe resolve_recipe(const TrainClassifyOptions& options) {
  const bool small = options.recipe == "small";
  const double lr = options.lr.value_or(1e-3);
  ClassifyRecipe recipe{.epochs = options.epochs.value_or(small ? 30.0 : 300.0),
                        .lr = lr,
                        .warmup_from = std::min(1e-6, lr),
                        .weight_decay = options.weight_decay.value_or(0.05),
                        .clip = options.clip.value_or(small ? 1.0 : 0.0),
                        .ema = options.ema.value_or(small ? 0.0 : 0.9996),
                        .batch = options.batch.value_or(small ? 256 : 1024),
                        .warmup_epochs = small ? 3.0 : 10.0,
                        .augmentation = data::augmentation_preset(
                            !options.augment.empty() ? options.augment : (small ? "light" : "deit")),
                        .model = options.model};
  data::Augmentation& augmentation = recipe.augmentation;
  if (options.rand_augment == "none")
    augmentation.rand_augment.reset();
  else if (!options.rand_augment.empty())
    augmentation.rand_augment = data::parse_rand_augment(options.rand_augment);
  augmentation.mixup = options.mixup.value_or(augmentation.mixup);
  augmentation.cutmix = options.cutmix.value_or(augmentation.cutmix);
  augmentation.smoothing = options.smoothing.value_or(augmentation.smoothing);
  augmentation.erasing = options.erasing.value_or(augmentation.erasing);
  augmentation.color_jitter = options.color_jitter.value_or(augmentation.color_jitter);
  try {
    data::validate(augmentation);
  } catch (const Error& error) {
    throw UsageError(fmt::format("augmentation: {}", error.what()));
  }
  if (options.mean.empty() != options.deviation.empty()) throw UsageError("--mean and --std go together");
  models::ClassifierOptions& model = recipe.model;
  const std::int64_t side = small ? 64 : 224;
  model.image_size = options.image_size.empty() ? std::vector{side, side} : options.image_size;
  if (model.image_size.size() == 1) model.image_size.push_back(model.image_size[0]);
  const bool small_patches = small && model.model.starts_with("deit");  // others have a stem of their own
  model.patch = options.patch.value_or(small_patches ? 4 : 16);
  model.drop_path = options.drop_path.value_or(small ? 0.0 : 0.1);
  model.lepe = !options.no_lepe;
  return recipe;
}

}  // namespace mhla::tasks
