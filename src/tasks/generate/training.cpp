// Puts model, examples and trainer together, and keeps the best weights.
#include "tasks/generate/training.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "models/generators.hpp"
#include "tasks/generate/generate_task.hpp"
#include "tasks/usage_error.hpp"

namespace mhla::tasks {
namespace {

constexpr std::int64_t kClassesShown = 10;

struct GenerateRun {
  const TrainGenerateOptions& options;
  GenerateRecipe recipe;
  const TrainingDevice& place;
  TrainingExamples examples;
  std::shared_ptr<models::Generator> model;

  std::filesystem::path weights_file() const { return std::filesystem::path(options.out) / "model.safetensors"; }

  Optimisation optimisation() const {
    return {.steps = recipe.steps,
            .warmup = recipe.warmup,
            .batch = recipe.batch,
            .lr = recipe.lr,
            .min_lr = options.min_lr.value_or(0.0),
            .warmup_from = recipe.warmup > 0 ? 0.0 : recipe.lr,
            .weight_decay = recipe.weight_decay,
            .clip = recipe.clip,
            .ema = recipe.ema};
  }

  // What a run that is resumed must agree on.
  io::Json settings() const {
    io::Json network = model->options;
    network.erase("recompute");  // changes memory, not results
    io::Json all = common_settings(options, optimisation(), place);
    all.update(io::Json{{"model", network},
                        {"steps", recipe.steps},
                        {"noise", options.noise},
                        {"drop_class", options.drop_class},
                        {"augment", options.augment},
                        {"classes", examples.facts.classes},
                        {"space", examples.facts.space},
                        {"images", examples.training->size()}});
    return all;
  }

  void save_weights(const io::Json& results) const {
    models::save_generator(*model, weights_file(), examples.facts, options.half ? at::kHalf : at::kFloat,
                           {{"mhla.results", results}, {"mhla.command", command_line()}});
  }

  // Some pictures of each of the first classes, a row a class.
  GenerateTaskOptions task_options(const diffusion::Process& process) const {
    GenerateTaskOptions task{.seed = options.seed,
                             .drop_class = options.drop_class,
                             .mixing_rate = options.mixing_lr,
                             .val_images = options.val_images,
                             .columns = options.samples};
    task.samples.steps = std::min(options.sample_steps, examples.facts.steps);
    task.samples.sampler = usual_sampler(process);
    task.samples.guidance.scale = options.cfg_scale;
    task.samples.seed = options.seed;
    if (examples.facts.space == "pixels")
      for (std::int64_t label = 0; label < std::min(recipe.model.classes, kClassesShown); ++label)
        task.samples.classes.insert(task.samples.classes.end(), static_cast<std::size_t>(options.samples), label);
    task.samples.batch = std::max<std::int64_t>(1, std::ssize(task.samples.classes));
    return task;
  }
};

std::string list_of(const models::GeneratorOptions& model) {
  std::string text = fmt::format("preset {}", model.preset);
  for (const auto& [name, on] :
       {std::pair{"LePE", model.lepe}, std::pair{"CPE", model.cpe}, std::pair{"gate", model.gate},
        std::pair{"qk norm", model.qk_norm}, std::pair{"learned variance", model.learned_variance},
        std::pair{"frozen mixing", model.mixing_frozen}, std::pair{"mixing by input", model.mixing == "input"}})
    if (on) text += fmt::format(", {}", name);
  return text;
}

train::Facts facts_of(const GenerateRun& run) {
  const models::GeneratorOptions& model = run.model->options;
  return {{"training", fmt::format("{} with {} attention on {}", model.model, fmt::join(model.attention, ", "),
                                   std::filesystem::path(run.options.data).filename().string())},
          {"model", fmt::format("{}; {} x {} {} with {} channels, {} x {} blocks, {}", parameter_count(*run.model),
                                model.size[0], model.size[1], run.examples.facts.space, model.channels, model.blocks[0],
                                model.blocks[1], list_of(model))},
          {"images", run.examples.description},
          {"noise", fmt::format("{} schedule of {} steps; {} of the pictures without their class",
                                run.examples.facts.schedule, run.examples.facts.steps, run.options.drop_class)},
          {"device", device_text(run.place)},
          {"seed", std::to_string(run.options.seed)},
          {"out", run.options.out}};
}

}  // namespace

TrainedGenerator train_generator(const TrainGenerateOptions& options, const TrainingDevice& place,
                                 train::Communicator& communicator, std::ostream& text) {
  at::globalContext().setBenchmarkCuDNN(true);  // every batch has the same sizes: let it choose its kernels once
  GenerateRecipe recipe = resolve_recipe(options);
  TrainingExamples examples = open_examples(options, recipe, place.device, communicator, text);
  examples.facts.schedule = options.noise;
  recipe.model.size = examples.size;
  recipe.model.channels = examples.channels;
  recipe.model.classes = std::ssize(examples.facts.classes);
  auto model = initial_model(
      options, [&] { return models::make_generator(recipe.model); }, communicator.leads() ? &text : nullptr);
  model->to(place.device);
  GenerateRun run{options, recipe, place, std::move(examples), std::move(model)};

  train::TrainerOptions settings = trainer_options(options, run.optimisation(), place, text);
  settings.settings = run.settings();
  settings.about = facts_of(run);
  const auto save_best = [&](const train::Evaluation& evaluation) {
    io::Json results = io::Json::object();
    for (const auto& [name, value] : evaluation.numbers) results[name] = value;
    run.save_weights(results);
  };
  const auto process = diffusion::make_process(options.noise, run.examples.facts.steps, place.device);
  GenerateTask task(run.model, process, run.examples, run.task_options(*process), place.device, communicator,
                    save_best);
  train::Trainer trainer(task, settings, communicator);
  TrainedGenerator trained{.finished = trainer.run() == train::Ending::finished,
                           .steps = trainer.steps_done(),
                           .results = io::Json::object(),
                           .settings = settings.settings,
                           .weights = run.weights_file()};
  if (!trained.finished || !communicator.leads()) return trained;
  trained.results = stored_results(run.weights_file());
  text << fmt::format("weights    {}\nreport     {}\n", trained.weights.string(),
                      (std::filesystem::path(options.out) / "report.html").string());
  return trained;
}

}  // namespace mhla::tasks
