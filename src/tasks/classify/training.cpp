// Puts model, images and trainer together, and keeps the best weights.
#include "tasks/classify/training.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "models/base/weights.hpp"
#include "models/classifier_file.hpp"
#include "models/classifiers.hpp"
#include "report/text.hpp"
#include "tasks/classify/classify_task.hpp"
#include "tasks/classify/normalization.hpp"
#include "tasks/images.hpp"
#include "tasks/usage_error.hpp"
#include "train/trainer.hpp"

namespace mhla::tasks {
namespace {

models::Preprocessing preprocessing_of(const TrainingImages& images) {
  const data::ImageLoaderOptions& loading = images.training->options();
  return {loading.normalization.mean, loading.normalization.std, loading.crop_fraction};
}

struct ClassifyRun {
  const TrainClassifyOptions& options;
  ClassifyRecipe recipe;
  const TrainingDevice& place;
  std::ostream& text;
  TrainingImages images;
  std::shared_ptr<models::Classifier> model;

  std::filesystem::path weights_file() const { return std::filesystem::path(options.out) / "model.safetensors"; }

  Optimisation optimisation() const {
    const std::int64_t per_epoch = images.training->batches() / options.accumulate;
    const auto steps = std::max<std::int64_t>(1, std::llround(recipe.epochs * static_cast<double>(per_epoch)));
    const auto usual = std::min<std::int64_t>(std::llround(recipe.warmup_epochs * per_epoch), steps / 5);
    return {.steps = steps,
            .warmup = options.warmup.value_or(usual),
            .batch = recipe.batch,
            .lr = recipe.lr,
            .min_lr = options.min_lr.value_or(0.0),
            .warmup_from = recipe.warmup_from,
            .weight_decay = recipe.weight_decay,
            .clip = recipe.clip,
            .ema = recipe.ema};
  }

  // What a run that is resumed must agree on.
  io::Json settings() const {
    io::Json network = recipe.model;
    network.erase("recompute");  // changes memory, not results
    const models::Preprocessing pixels = preprocessing_of(images);
    io::Json all = common_settings(options, optimisation(), place);
    all.update(
        io::Json{{"model", network},
                 {"epochs", recipe.epochs},
                 {"augmentation", augmentation_text(recipe.augmentation)},
                 {"pixels", {{"mean", pixels.mean}, {"std", pixels.std}, {"crop_fraction", pixels.crop_fraction}}},
                 {"classes", images.classes()},
                 {"images", images.training->source().size()}});
    return all;
  }

  void save_weights(const models::Classifier& classifier, const io::Json& results) const {
    models::save_classifier(classifier, weights_file(), {images.classes(), preprocessing_of(images)},
                            options.half ? at::kHalf : at::kFloat,
                            {{"mhla.results", results}, {"mhla.command", command_line()}});
  }
};

train::Facts facts_of(const ClassifyRun& run) {
  const models::ClassifierOptions& model = run.recipe.model;
  const models::Preprocessing pixels = preprocessing_of(run.images);
  const auto changed = [](const char* name, std::int64_t value) {
    return value == 0 ? std::string() : fmt::format(", {} {}", name, value);
  };
  return {{"training", fmt::format("{} with {} attention on {}", model.model, fmt::join(model.attention, ", "),
                                   std::filesystem::path(run.options.data).filename().string())},
          {"model", fmt::format("{}{}{}{}; {} x {} pixels in patches of {}, {} x {} blocks, preset {}{}{}{}",
                                parameter_count(*run.model), changed("width", model.width),
                                changed("depth", model.depth), changed("heads", model.heads), model.image_size[0],
                                model.image_size[1], model.patch, model.blocks[0], model.blocks[1], model.preset,
                                model.lepe ? ", LePE" : "", model.mixing_frozen ? ", frozen mixing" : "",
                                model.mixing == "input" ? ", mixing by input" : "")},
          {"images", run.images.describe()},
          {"pixels", fmt::format("mean {:.3f}, std {:.3f}; {}", fmt::join(pixels.mean, " "), fmt::join(pixels.std, " "),
                                 augmentation_text(run.recipe.augmentation))},
          {"device", device_text(run.place)},
          {"seed", std::to_string(run.options.seed)},
          {"out", run.options.out}};
}

TrainingImages open_images(const TrainClassifyOptions& options, const ClassifyRecipe& recipe, at::Device device,
                           const train::Communicator& communicator, std::ostream& text) {
  ImageRequest request{.data = options.data, .cache = options.cache, .accumulate = options.accumulate};
  request.loading.batch = recipe.batch;
  request.loading.image_size = recipe.model.image_size;
  request.loading.augmentation = recipe.augmentation;
  request.loading.seed = options.seed;
  request.loading.threads = options.workers;
  // Small images are all there is to see of the scene; larger ones are cut as is usual.
  request.loading.crop_fraction = options.recipe == "small" ? 1.0 : 0.875;
  request.normalization = [&](const data::ImageSource& training) { return chosen_normalization(options, training); };
  return open_training_images(request, device, communicator, text);
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

}  // namespace

TrainedClassifier train_classifier(const TrainClassifyOptions& options, const TrainingDevice& place,
                                   train::Communicator& communicator, std::ostream& text) {
  at::globalContext().setBenchmarkCuDNN(true);  // every batch has the same sizes: let it choose its kernels once
  ClassifyRecipe recipe = resolve_recipe(options);
  TrainingImages images = open_images(options, recipe, place.device, communicator, text);
  recipe.model.classes = std::ssize(images.classes());
  auto model = initial_model(
      options, [&] { return models::make_classifier(recipe.model); }, communicator.leads() ? &text : nullptr);
  model->to(place.device);
  ClassifyRun run{options, recipe, place, text, std::move(images), std::move(model)};

  train::TrainerOptions settings = trainer_options(options, run.optimisation(), place, text);
  settings.settings = run.settings();
  settings.about = facts_of(run);
  const auto save_best = [&](const train::Evaluation& evaluation) {
    io::Json results = io::Json::object();
    for (const auto& [name, value] : evaluation.numbers) results[name] = value;
    run.save_weights(*run.model, results);
  };
  ClassifyTask task(run.model, *run.images.training, run.images.validation.get(), place.device, communicator,
                    options.mixing_lr, save_best);
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
