// Puts model, images and trainer together, and keeps the best weights.
#include "tasks/classify/training.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <fstream>

#include "io/printable.hpp"
#include "io/safetensors.hpp"
#include "models/base/weights.hpp"
#include "models/classifier_file.hpp"
#include "models/classifiers.hpp"
#include "report/text.hpp"
#include "tasks/classify/classify_task.hpp"
#include "tasks/classify/images.hpp"
#include "tasks/usage_error.hpp"
#include "train/trainer.hpp"

namespace mhla::tasks {
namespace {

// As the user wrote it, to be kept with the weights.
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

struct ClassifyRun {
  const TrainClassifyOptions& options;
  ClassifyRecipe recipe;
  const TrainingDevice& place;
  std::ostream& text;
  ClassifyImages images;
  std::shared_ptr<models::Classifier> model;

  std::filesystem::path weights_file() const { return std::filesystem::path(options.out) / "model.safetensors"; }

  // What a run that is resumed must agree on.
  io::Json settings(std::int64_t warmup) const {
    io::Json network = recipe.model;
    network.erase("recompute");  // changes memory, not results
    const models::Preprocessing& pixels = images.preprocessing;
    return {{"model", network},
            {"epochs", recipe.epochs},
            {"batch", recipe.batch},
            {"accumulate", options.accumulate},
            {"lr", recipe.lr},
            {"min_lr", options.min_lr},
            {"schedule", options.schedule},
            {"warmup", warmup},
            {"weight_decay", recipe.weight_decay},
            {"clip", recipe.clip},
            {"ema", recipe.ema},
            {"seed", options.seed},
            {"augmentation", augmentation_text(recipe.augmentation)},
            {"bf16", place.bf16},
            {"pixels", {{"mean", pixels.mean}, {"std", pixels.std}, {"crop_fraction", pixels.crop_fraction}}},
            {"classes", images.classes()},
            {"images", images.training->source().size()}};
  }

  void save_weights(const models::Classifier& classifier, const io::Json& results) const {
    models::save_classifier(classifier, weights_file(), {images.classes(), images.preprocessing},
                            options.half ? at::kHalf : at::kFloat,
                            {{"mhla.results", results}, {"mhla.command", command_line()}});
  }
};

train::Facts facts_of(const ClassifyRun& run) {
  const models::ClassifierOptions& model = run.recipe.model;
  std::int64_t count = 0;
  for (const at::Tensor& parameter : run.model->parameters()) count += parameter.numel();
  const models::Preprocessing& pixels = run.images.preprocessing;
  const auto changed = [](const char* name, std::int64_t value) {
    return value == 0 ? std::string() : fmt::format(", {} {}", name, value);
  };
  return {{"training", fmt::format("{} with {} attention on {}", model.model, fmt::join(model.attention, ", "),
                                   std::filesystem::path(run.options.data).filename().string())},
          {"model", fmt::format("{} parameters{}{}{}; {} x {} pixels in patches of {}, {} x {} blocks, preset {}{}{}",
                                report::grouped(static_cast<double>(count)), changed("width", model.width),
                                changed("depth", model.depth), changed("heads", model.heads), model.image_size[0],
                                model.image_size[1], model.patch, model.blocks[0], model.blocks[1], model.preset,
                                model.lepe ? ", LePE" : "", model.mixing_frozen ? ", frozen mixing" : "")},
          {"images", run.images.describe()},
          {"pixels", fmt::format("mean {:.3f}, std {:.3f}; {}", fmt::join(pixels.mean, " "), fmt::join(pixels.std, " "),
                                 augmentation_text(run.recipe.augmentation))},
          {"device", fmt::format("{}{}", run.place.name, run.place.bf16 ? "; matrix products in bf16" : "")},
          {"seed", std::to_string(run.options.seed)},
          {"out", run.options.out}};
}

train::TrainerOptions trainer_options(const ClassifyRun& run) {
  const TrainClassifyOptions& given = run.options;
  const std::int64_t per_epoch = run.images.training->batches() / given.accumulate;
  const auto steps = std::max<std::int64_t>(1, std::llround(run.recipe.epochs * static_cast<double>(per_epoch)));
  const auto warmup = given.warmup.value_or(
      std::min(std::llround(run.recipe.warmup_epochs * per_epoch), static_cast<long long>(steps / 5)));
  if (warmup > steps) throw UsageError(fmt::format("--warmup is {}, but the run has {} steps", warmup, steps));
  if (given.min_lr > run.recipe.lr)
    throw UsageError(fmt::format("--min-lr is {}, above --lr {}", given.min_lr, run.recipe.lr));
  train::TrainerOptions options;
  options.out = given.out;
  options.schedule = {given.schedule, run.recipe.lr, given.min_lr, run.recipe.warmup_from, warmup, steps};
  options.adamw.weight_decay = run.recipe.weight_decay;
  options.adamw.clip = run.recipe.clip;
  options.accumulate = given.accumulate;
  options.ema = run.recipe.ema;
  options.bf16 = run.place.bf16;
  options.seed = given.seed;
  options.log_every = given.log_every;
  options.evaluate_every = given.eval_every;
  options.checkpoint_every = given.checkpoint_every;
  options.keep = given.keep;
  options.resume = given.resume;
  options.settings = run.settings(warmup);
  options.about = facts_of(run);
  options.device_name = run.place.name;
  options.text = &run.text;
  return options;
}

// What fits of the file of --init; a file of which nothing does is taken for a mistake.
void begin_with(const std::string& file, models::Classifier& model, std::ostream* text) {
  const models::LoadReport report = models::load_weights(model, file, models::LoadMode::adapt);
  if (report.loaded == 0)
    throw UsageError(fmt::format("--init is {}, of which no tensor fits the model\n{}", file, report.text()));
  if (text == nullptr) return;
  const std::string findings = report.text();
  *text << fmt::format("{} of {} tensors from {}{}{}\n", report.loaded, models::named_tensors(model).size(), file,
                       findings.empty() ? "" : ":\n", findings)
        << std::flush;
}

std::shared_ptr<models::Classifier> make_model(const TrainClassifyOptions& options, ClassifyRecipe& recipe,
                                               const ClassifyImages& images, std::ostream* text) {
  recipe.model.classes = static_cast<std::int64_t>(images.classes().size());
  torch::manual_seed(options.seed);
  std::shared_ptr<models::Classifier> model;
  try {
    model = models::make_classifier(recipe.model);
  } catch (const Error& error) {
    throw UsageError(fmt::format("model: {}", error.what()));
  }
  if (!options.init.empty()) begin_with(options.init, *model, text);
  return model;
}

// The weights as stored, on images no choice was made by.
io::Json test(const ClassifyRun& run, io::Json results) {
  const models::LoadedClassifier loaded = models::load_classifier(run.weights_file(), run.place.device);
  const auto alone = train::alone();
  const Classification result = classify_all(*loaded.model, *run.images.test, run.place.device, *alone);
  results["test/top1"] = result.top1_accuracy();
  results["test/top5"] = result.top5_accuracy();
  results["test/images"] = result.images;
  run.save_weights(*loaded.model, results);
  run.text << fmt::format("test: top-1 {:.4f}, top-5 {:.4f} on {} images\n", result.top1_accuracy(),
                          result.top5_accuracy(), result.images);
  return results;
}

// Of the file with the best weights.
io::Json stored_results(const std::filesystem::path& path) {
  const io::Json results = models::stored_json(io::SafeTensors::load(path), "mhla.results");
  return results.is_null() ? io::Json::object() : results;
}

}  // namespace

TrainedClassifier train_classifier(const TrainClassifyOptions& options, const TrainingDevice& place,
                                   train::Communicator& communicator, std::ostream& text) {
  at::globalContext().setBenchmarkCuDNN(true);  // every batch has the same sizes: let it choose its kernels once
  ClassifyRecipe recipe = resolve_recipe(options);
  ClassifyImages images = open_classify_images(options, recipe, place.device, communicator, text);
  auto model = make_model(options, recipe, images, communicator.leads() ? &text : nullptr);
  model->to(place.device);
  ClassifyRun run{options, recipe, place, text, std::move(images), std::move(model)};

  const train::TrainerOptions settings = trainer_options(run);
  const auto save_best = [&](const train::Evaluation& evaluation) {
    io::Json results = io::Json::object();
    for (const auto& [name, value] : evaluation.numbers) results[name] = value;
    run.save_weights(*run.model, results);
  };
  ClassifyTask task(run.model, *run.images.training, run.images.validation.get(), place.device, communicator,
                    save_best);
  train::Trainer trainer(task, settings, communicator);
  TrainedClassifier trained{.finished = trainer.run() == train::Ending::finished,
                            .steps = trainer.steps_done(),
                            .results = io::Json::object(),
                            .settings = settings.settings,
                            .weights = run.weights_file()};
  if (trained.finished && communicator.leads()) trained.results = stored_results(run.weights_file());
  if (trained.finished && run.images.test) trained.results = test(run, trained.results);
  trained.bad_images = run.images.bad_images(communicator);
  if (!communicator.leads()) return trained;

  if (const std::int64_t bad = trained.bad_images; bad > 0)
    text << fmt::format("{} could not be read and {} left out\n",
                        bad == 1 ? "1 image" : report::grouped(static_cast<double>(bad)) + " images",
                        bad == 1 ? "was" : "were");
  if (trained.finished)
    text << fmt::format("weights    {}\nreport     {}\n", trained.weights.string(),
                        (std::filesystem::path(options.out) / "report.html").string());
  return trained;
}

}  // namespace mhla::tasks
