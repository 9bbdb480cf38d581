// The recipes, and how a step is divided.
#include "tasks/language/recipe.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/lm/lm_design.hpp"
#include "models/lm_file.hpp"
#include "tasks/usage_error.hpp"

namespace mhla::tasks {
namespace {

constexpr std::int64_t kTokensAtOnceOnCpu = std::int64_t{1} << 13;

struct LanguageDefaults {
  const char* model;
  std::int64_t steps, context, batch_tokens, warmup;
  std::int64_t at_once;  // tokens; an H200 has memory for their activations
  double lr, weight_decay;
};
constexpr LanguageDefaults kSmall{"lm_small", 3000, 1024, 1 << 16, 200, 1 << 16, 1e-3, 0.1};
constexpr LanguageDefaults k340m{"lm_340m", 38'147, 2048, 1 << 18, 1024, 1 << 15, 3e-4, 0.01};  // 10^10 tokens

std::int64_t windows_of_step(std::int64_t batch_tokens, std::int64_t context, std::int64_t processes) {
  if (batch_tokens % (context * processes) != 0)
    throw UsageError(fmt::format("--batch-tokens is {}; it must be a multiple of {}: --context {} on {} process{}",
                                 batch_tokens, context * processes, context, processes, processes == 1 ? "" : "es"));
  return batch_tokens / context;
}

// The largest divisor of `windows` within the limit.
std::int64_t windows_at_once(std::int64_t windows, std::int64_t limit) {
  std::int64_t count = std::clamp<std::int64_t>(limit, 1, windows);
  while (windows % count != 0) --count;
  return count;
}

std::int64_t micro_batch_of(const TrainLanguageOptions& options, std::int64_t windows, std::int64_t limit) {
  const std::int64_t count = options.micro_batch.value_or(windows_at_once(windows, limit));
  if (windows % count != 0)
    throw UsageError(fmt::format("--micro-batch is {}; it must be a divisor of {}, the windows of a step of a process",
                                 count, windows));
  return count;
}

models::LmOptions model_of(const TrainLanguageOptions& options, const char* name, std::int64_t context) {
  models::LmOptions base;
  base.model = name;
  base.blocks = 1;
  if (!options.init.empty()) {
    base = models::stored_lm_options(options.init);
    base.recompute = false;
  }
  io::Json members = base;
  members.update(options.model);
  auto model = members.get<models::LmOptions>();
  const std::int64_t needed = (context + model.block_size - 1) / model.block_size;
  if (!options.model.contains("blocks")) model.blocks = std::max(model.blocks, needed);
  const bool mixes = std::ranges::count(model.attention, "mhla") > 0;
  if (mixes && model.blocks < needed && model.beyond == "error")
    throw UsageError(fmt::format("--blocks is {}; --context {} makes {} blocks of {} tokens, and --beyond is error",
                                 model.blocks, context, needed, model.block_size));
  return model;
}

}  // namespace

LanguageRecipe resolve_recipe(const TrainLanguageOptions& options, std::int64_t processes, bool on_gpu) {
  const LanguageDefaults& usual = options.recipe == "small" ? kSmall : k340m;
  const std::int64_t steps = options.steps.value_or(usual.steps), context = options.context.value_or(usual.context);
  const double lr = options.lr.value_or(usual.lr);
  const std::int64_t batch_tokens = options.batch_tokens.value_or(
      std::max<std::int64_t>(1, usual.batch_tokens / (context * processes)) * context * processes);
  const std::int64_t windows = windows_of_step(batch_tokens, context, processes);
  const std::int64_t at_once = on_gpu ? usual.at_once : std::min(usual.at_once, kTokensAtOnceOnCpu);
  return {.steps = steps,
          .context = context,
          .warmup = options.warmup.value_or(std::min(usual.warmup, steps / 5)),
          .windows = windows,
          .micro_batch = micro_batch_of(options, windows / processes, at_once / context),
          .lr = lr,
          .min_lr = options.min_lr.value_or(lr / 10.0),
          .weight_decay = options.weight_decay.value_or(usual.weight_decay),
          .clip = options.clip.value_or(1.0),
          .ema = options.ema.value_or(0.0),
          .model = model_of(options, usual.model, context)};
}

}  // namespace mhla::tasks
