// The parts of a training run that do not depend on its task.
#include "tasks/training_run.hpp"

#include <fmt/format.h>

#include <fstream>

#include "io/printable.hpp"
#include "io/safetensors.hpp"
#include "models/base/weights.hpp"
#include "report/text.hpp"
#include "tasks/usage_error.hpp"

namespace mhla::tasks {

train::TrainerOptions trainer_options(const TrainingOptions& options, const Optimisation& optimisation,
                                      const TrainingDevice& place, std::ostream& text) {
  if (optimisation.warmup > optimisation.steps)
    throw UsageError(fmt::format("--warmup is {}, but the run has {} steps", optimisation.warmup, optimisation.steps));
  if (optimisation.min_lr > optimisation.lr)
    throw UsageError(fmt::format("--min-lr is {}, above --lr {}", optimisation.min_lr, optimisation.lr));
  train::TrainerOptions result;
  result.out = options.out;
  result.schedule = {options.schedule,         optimisation.lr,     optimisation.min_lr,
                     optimisation.warmup_from, optimisation.warmup, optimisation.steps};
  result.adamw.weight_decay = optimisation.weight_decay;
  result.adamw.clip = optimisation.clip;
  result.accumulate = options.accumulate;
  result.ema = optimisation.ema;
  result.bf16 = place.bf16;
  result.seed = options.seed;
  result.log_every = options.log_every;
  result.evaluate_every = options.eval_every;
  result.checkpoint_every = options.checkpoint_every;
  result.keep = options.keep;
  result.resume = options.resume;
  result.device_name = place.name;
  result.text = &text;
  return result;
}

io::Json common_settings(const TrainingOptions& options, const Optimisation& optimisation,
                         const TrainingDevice& place) {
  io::Json settings = {{"batch", optimisation.batch},
                       {"accumulate", options.accumulate},
                       {"lr", optimisation.lr},
                       {"min_lr", optimisation.min_lr},
                       {"schedule", options.schedule},
                       {"warmup", optimisation.warmup},
                       {"weight_decay", optimisation.weight_decay},
                       {"clip", optimisation.clip},
                       {"ema", optimisation.ema},
                       {"seed", options.seed},
                       {"bf16", place.bf16}};
  if (options.mixing_lr != 1.0) settings["mixing_lr"] = options.mixing_lr;
  return settings;
}

void begin_with(const std::string& file, models::Model& model, std::ostream* text) {
  say_what_fits(file, model, models::load_weights(model, file, models::LoadMode::adapt), text);
}

void say_what_fits(const std::string& file, const models::Model& model, const models::LoadReport& report,
                   std::ostream* text) {
  if (report.loaded == 0)
    throw UsageError(fmt::format("--init is {}, of which no tensor fits the model\n{}", file, report.text()));
  if (text == nullptr) return;
  const std::string findings = report.text();
  *text << fmt::format("{} of {} tensors from {}{}{}\n", report.loaded, models::named_tensors(model).size(), file,
                       findings.empty() ? "" : ":\n", findings)
        << std::flush;
}

std::string parameter_count(const torch::nn::Module& model) {
  std::int64_t count = 0;
  for (const at::Tensor& parameter : model.parameters()) count += parameter.numel();
  return fmt::format("{} parameters", report::grouped(static_cast<double>(count)));
}

std::string device_text(const TrainingDevice& place) {
  return place.name + (place.bf16 ? "; matrix products in bf16" : "");
}

std::string command_line() {
  const auto bytes = [] {
    std::ifstream stream("/proc/self/cmdline", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  }();
  std::string line = "mhla";
  for (std::size_t begin = bytes.find('\0'); begin != std::string::npos && begin + 1 < bytes.size();) {
    const std::size_t end = bytes.find('\0', begin + 1);
    line += ' ' + bytes.substr(begin + 1, end - begin - 1);
    begin = end;
  }
  return io::printable(line);
}

io::Json stored_results(const std::filesystem::path& path) {
  const io::Json results = models::stored_json(io::SafeTensors::load(path), "mhla.results");
  return results.is_null() ? io::Json::object() : results;
}

}  // namespace mhla::tasks
