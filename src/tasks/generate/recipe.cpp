// The recipes.
#include "tasks/generate/recipe.hpp"

#include <algorithm>

#include "tasks/usage_error.hpp"

namespace mhla::tasks {

GenerateRecipe resolve_recipe(const TrainGenerateOptions& options) {
  const bool small = options.recipe == "small";
  const std::int64_t steps = options.steps.value_or(small ? 4000 : 400'000);
  GenerateRecipe recipe{.steps = steps,
                        .batch = options.batch.value_or(256),
                        .warmup = options.warmup.value_or(small ? std::min<std::int64_t>(200, steps / 5) : 0),
                        .lr = options.lr.value_or(small ? 5e-4 : 1e-4),
                        .weight_decay = options.weight_decay.value_or(0.0),
                        .clip = options.clip.value_or(small ? 1.0 : 0.0),
                        .ema = options.ema.value_or(small ? 0.998 : 0.9999),
                        .model = options.model};
  models::GeneratorOptions& model = recipe.model;
  model.model = !options.model_name.empty() ? options.model_name : (small ? "dit_t4" : "dit_s2");
  const std::int64_t side = small ? 64 : 256;
  model.size = options.image_size.empty() ? std::vector{side, side} : options.image_size;
  if (model.size.size() == 1) model.size.push_back(model.size[0]);
  const bool flow = options.noise == "flow";
  model.learned_variance = options.learned_variance.value_or(!small && !flow);
  if (flow && model.learned_variance)
    throw UsageError("--learned-variance is true; a flow (--noise flow) has no variance to learn, so it must be false");
  return recipe;
}

}  // namespace mhla::tasks
