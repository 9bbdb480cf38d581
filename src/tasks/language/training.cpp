// Puts model, tokens and trainer together, and keeps the best weights beside their tokenizer.
#include "tasks/language/training.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/printable.hpp"
#include "models/lm/lm_design.hpp"
#include "models/lm_file.hpp"
#include "report/text.hpp"
#include "tasks/language/language_model.hpp"
#include "tasks/language/language_task.hpp"
#include "tasks/usage_error.hpp"

namespace mhla::tasks {
namespace {

constexpr double kBeta2 = 0.95;  // gradients of language models change faster than 0.999 forgets

std::filesystem::path tokenizer_path(const TrainLanguageOptions& options) {
  if (!options.tokenizer.empty()) return options.tokenizer;
  if (!text::has_tokenizer(options.data))
    throw UsageError(fmt::format("--tokenizer is needed, since --data {} has none beside its splits", options.data));
  return options.data;
}

std::shared_ptr<const data::TokenDataset> open_split(const TrainLanguageOptions& options, const char* split,
                                                     const text::Tokenizer& tokenizer, std::int64_t context) {
  const std::filesystem::path folder = std::filesystem::path(options.data) / split;
  auto tokens = std::make_shared<data::TokenDataset>(folder);
  const data::TokenIndex& index = tokens->index();
  if (index.tokenizer != tokenizer.fingerprint())
    throw UsageError(fmt::format("--data: {} was made with the tokenizer {}, but --tokenizer is {}", folder.string(),
                                 index.tokenizer, tokenizer.fingerprint()));
  if (tokens->size() <= context)
    throw UsageError(fmt::format("--context is {}; {} has {} tokens, and at least one more than the context is needed",
                                 context, folder.string(), tokens->size()));
  return tokens;
}

LanguageData open_data(const TrainLanguageOptions& options, const LanguageRecipe& recipe) {
  LanguageData data;
  data.tokenizer = text::open_tokenizer(tokenizer_path(options));
  const std::filesystem::path folder(options.data);
  if (!std::filesystem::is_directory(folder / "train"))
    throw UsageError(fmt::format("--data is {}, which has no folder train; `mhla tokenize` makes it", options.data));
  data.training = open_split(options, "train", *data.tokenizer, recipe.context);
  if (std::filesystem::is_directory(folder / "val"))
    data.validation = open_split(options, "val", *data.tokenizer, recipe.context);
  const std::int64_t windows = (data.training->size() - 1) / recipe.context;
  if (recipe.windows > windows)
    throw UsageError(fmt::format("--batch-tokens is {}, {} windows of {} tokens; {} has {} of them",
                                 recipe.batch_tokens(), recipe.windows, recipe.context, (folder / "train").string(),
                                 windows));
  return data;
}

struct LanguageRun {
  const TrainLanguageOptions& options;
  LanguageRecipe recipe;
  const TrainingDevice& place;
  LanguageData data;
  std::shared_ptr<models::Lm> model;
  std::int64_t processes;

  std::filesystem::path weights_file() const { return std::filesystem::path(options.out) / "model.safetensors"; }

  Optimisation optimisation() const {
    return {.steps = recipe.steps,
            .warmup = recipe.warmup,
            .batch = recipe.micro_batch * processes,
            .lr = recipe.lr,
            .min_lr = recipe.min_lr,
            .warmup_from = recipe.warmup > 0 ? 0.0 : recipe.lr,
            .weight_decay = recipe.weight_decay,
            .clip = recipe.clip,
            .ema = recipe.ema};
  }

  // What a run that is resumed must agree on. How a step is divided is left out: it changes no more than rounding.
  io::Json settings() const {
    io::Json network = model->options;
    network.erase("recompute");  // changes memory, not results
    io::Json all = common_settings(options, optimisation(), place);
    all.erase("batch");
    all.erase("accumulate");
    all.update(io::Json{{"model", network},
                        {"steps", recipe.steps},
                        {"batch_tokens", recipe.batch_tokens()},
                        {"context", recipe.context},
                        {"separate_documents", options.separate_documents},
                        {"tokenizer", data.tokenizer->fingerprint()},
                        {"tokens", data.training->size()}});
    return all;
  }

  LanguageTaskOptions task_options() const {
    LanguageTaskOptions task{.context = recipe.context,
                             .batch = recipe.micro_batch * processes,
                             .separate_documents = options.separate_documents,
                             .mixing_rate = options.mixing_lr,
                             .val_tokens = options.val_tokens,
                             .seed = options.seed};
    task.text = {.prompt = options.prompt, .begin = data.training->index().begin, .sampling = {.seed = options.seed}};
    task.text.sampling.temperature = 0.8;
    if (!io::is_utf8(options.prompt)) throw UsageError("--prompt is no UTF-8");
    const std::int64_t prompt = 1 + std::ssize(data.tokenizer->encode(options.prompt));
    if (options.sample_tokens > 0 && prompt >= recipe.context)
      throw UsageError(fmt::format("--prompt has {} tokens; --context {} has room for {} and an answer", prompt - 1,
                                   recipe.context, std::max<std::int64_t>(0, recipe.context - 2)));
    task.text.tokens = std::min(options.sample_tokens, recipe.context - prompt);
    return task;
  }

  void save_weights(const train::Evaluation& evaluation) const {
    io::Json results = io::Json::object();
    for (const auto& [name, value] : evaluation.numbers) results[name] = value;
    text::copy_tokenizer(tokenizer_path(options), options.out);
    save_language_model(*model, *data.tokenizer, weights_file(), options.half ? at::kHalf : at::kFloat,
                        {{"mhla.results", results}, {"mhla.command", command_line()}});
  }
};

std::string model_text(const models::Lm& model) {
  const models::LmDesign design(model.options);
  std::string text = fmt::format("{}; width {}, depth {}", parameter_count(model), design.width, design.depth);
  if (std::ranges::count(design.attention, nn::CausalKind::mhla) > 0)
    text += fmt::format(", {} blocks of {} tokens", model.options.blocks, model.options.block_size);
  return text;
}

std::string tokens_text(const data::TokenDataset& tokens) {
  return fmt::format("{} tokens of {} documents", report::grouped(static_cast<double>(tokens.size())),
                     report::grouped(static_cast<double>(tokens.index().documents)));
}

train::Facts facts_of(const LanguageRun& run) {
  const LanguageData& data = run.data;
  return {{"training", fmt::format("{} with {} attention on {}", run.model->options.model,
                                   fmt::join(run.model->options.attention, ", "),
                                   std::filesystem::path(run.options.data).filename().string())},
          {"model", model_text(*run.model)},
          {"tokens", tokens_text(*data.training) +
                         (data.validation ? "; held out: " + tokens_text(*data.validation) : "; none held out")},
          {"tokenizer", fmt::format("{}, {} tokens, {}", data.tokenizer->kind(), data.tokenizer->size(),
                                    data.tokenizer->fingerprint())},
          {"batch", fmt::format("{} windows of {} tokens, {} at a time; documents of a window {} each other",
                                run.recipe.windows, run.recipe.context, run.recipe.micro_batch * run.processes,
                                run.options.separate_documents ? "do not see" : "see")},
          {"device", device_text(run.place)},
          {"seed", std::to_string(run.options.seed)},
          {"out", run.options.out}};
}

std::shared_ptr<models::Lm> make_model(const TrainLanguageOptions& options, const models::LmOptions& network,
                                       std::ostream* text) {
  TrainingOptions without_init = options;
  without_init.init.clear();
  auto model = initial_model(without_init, [&] { return std::make_shared<models::Lm>(network); }, nullptr);
  if (!options.init.empty()) say_what_fits(options.init, *model, models::fill_lm(*model, options.init), text);
  return model;
}

}  // namespace

TrainedLanguageModel train_language_model(const TrainLanguageOptions& options, const TrainingDevice& place,
                                          train::Communicator& communicator, std::ostream& text) {
  LanguageRecipe recipe = resolve_recipe(options, communicator.size(), place.device.is_cuda());
  LanguageData data = open_data(options, recipe);
  recipe.model.vocabulary = data.training->index().vocabulary;
  auto model = make_model(options, recipe.model, communicator.leads() ? &text : nullptr);
  model->to(place.device);
  const LanguageRun run{options, recipe, place, std::move(data), std::move(model), communicator.size()};

  train::TrainerOptions settings = trainer_options(options, run.optimisation(), place, text);
  settings.accumulate = recipe.accumulate(communicator.size());
  settings.adamw.beta2 = kBeta2;
  settings.settings = run.settings();
  settings.about = facts_of(run);
  LanguageTask task(run.model, run.data, run.task_options(), place.device, communicator,
                    [&](const train::Evaluation& evaluation) { run.save_weights(evaluation); });
  train::Trainer trainer(task, settings, communicator);
  TrainedLanguageModel trained{.finished = trainer.run() == train::Ending::finished,
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
