// The models of a benchmark: made, checked, timed.
#include "cli/bench/model_run.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/bench/softmax_order.hpp"
#include "cli/support/measure.hpp"
#include "cli/support/operator_call.hpp"
#include "mhla/torch.hpp"
#include "train/adamw.hpp"
#include "train/autocast.hpp"
#include "train/parameters.hpp"

namespace mhla::cli::bench {
namespace {

constexpr double kLearningRate = 1e-4;

at::Tensor with_numbers_in(const at::Tensor& x, at::ScalarType type) { return x.is_floating_point() ? x.to(type) : x; }

// Training under autocast keeps parameters in float32; inference has them in the type of the benchmark.
class BenchedModel {
 public:
  BenchedModel(const WorkloadOptions& options, const ModelSettings& settings, Shelf& shelf)
      : settings_(settings), low_(settings.dtype != torch::kFloat),
        workload_(make_workload(options, settings.batch, settings.device, shelf)), x_(workload_->input) {
    model().train(settings.training());
    check();
    if (low_ && !settings.training()) model().to(settings.dtype), x_ = with_numbers_in(x_, settings.dtype);
    if (settings.training())
      optimizer_.emplace(
          train::trained_parameters(model(), [&](const std::string& name) { return model().decays(name); }),
          train::AdamWOptions{});
    if (options.attention == "softmax") softmax_ = fastest_softmax(Stopwatch(settings.device), [&] { run(); });
    run();
  }
  ~BenchedModel() { model().zero_grad(); }  // the model may be used again
  BenchedModel(const BenchedModel&) = delete;
  BenchedModel& operator=(const BenchedModel&) = delete;

  void run() {
    prefer_softmax(softmax_);
    if (!settings_.training()) {
      const torch::NoGradGuard no_gradient;
      if (settings_.pass == "guided")
        workload_->guided(x_);
      else
        workload_->forward(x_);
      return;
    }
    model().zero_grad();
    at::Tensor loss;
    {
      const train::Autocast autocast(settings_.device, low_);
      loss = workload_->loss(workload_->forward(x_));
    }
    loss.backward();
    optimizer_->step(kLearningRate);
    model().after_step();
  }

  double relative_error() const { return relative_error_; }
  SoftmaxChoice softmax() const { return softmax_; }
  Workload& workload() { return *workload_; }
  models::Model& model() { return workload_->model(); }

 private:
  // The output for one input against double, for bf16 against float32; dropout and batch statistics are off.
  void check() {
    const torch::NoGradGuard no_gradient;
    const at::Tensor sample = workload_->sample();
    model().eval();
    at::Tensor found, exact;
    {
      const train::Autocast autocast(settings_.device, low_);
      found = workload_->forward(sample);
    }
    if (low_) {
      exact = workload_->forward(sample);
    } else {
      model().to(torch::kDouble);
      exact = workload_->forward(with_numbers_in(sample, torch::kDouble));
      model().to(torch::kFloat);
    }
    model().train(settings_.training());
    relative_error_ = relative_rms(found, exact);
    const double limit = low_ ? 8e-2 : 1e-4;
    if (!(relative_error_ <= limit))
      throw Error(fmt::format("{} with {} at size {}: the output is off by {:.1e}, more than {:.0e}",
                              workload_->options.model, workload_->options.attention, workload_->options.size,
                              relative_error_, limit));
  }

  ModelSettings settings_;
  bool low_;
  std::unique_ptr<Workload> workload_;
  at::Tensor x_;  // its input, in the type of the benchmark
  std::optional<train::AdamW> optimizer_;
  SoftmaxChoice softmax_ = SoftmaxChoice::automatic;
  double relative_error_ = 0.0;
};

ModelRow row_of(const WorkloadOptions& options, const ModelSettings& settings) {
  const std::int64_t side = is_language_model(options.model) ? 0 : options.size;
  return {.model = options.model,
          .attention = options.attention,
          .pass = settings.pass,
          .device = settings.device.is_cuda() ? "cuda" : "cpu",
          .dtype = settings.dtype == torch::kFloat ? "f32" : "bf16",
          .height = side,
          .width = side,
          .batch = settings.batch};
}

// What a model says of itself, and the memory of one run.
void describe(ModelRow& row, BenchedModel& benched, const ModelSettings& settings) {
  row.tokens = benched.workload().tokens();
  if (const at::Tensor mixing = benched.workload().first_mixing(); mixing.defined()) row.blocks = mixing.size(0);
  row.rel_err = benched.relative_error();
  if (benched.softmax() != SoftmaxChoice::automatic) row.softmax = name(benched.softmax());
  benched.model().zero_grad();
  row.peak_bytes = peak_allocation(settings.device.type(), [&] { benched.run(); });
  if (settings.profile) row.profile = profile_of(settings.device, [&] { benched.run(); });
}

// The tokens of a model that was not made.
std::int64_t tokens_of(const WorkloadOptions& options) {
  if (is_language_model(options.model)) return options.size;
  const std::int64_t patch = patch_pixels(options), side = (options.size + patch - 1) / patch;
  return side * side;
}

}  // namespace

std::string ModelRow::label() const {
  if (attention != "mhla") return attention;
  return fmt::format("MHLA, M = {}", blocks);
}

io::Json ModelRow::json() const {
  io::Json json = {{"model", model},   {"attention", attention}, {"pass", pass},      {"device", device},
                   {"dtype", dtype},   {"height", height},       {"width", width},    {"tokens", tokens},
                   {"blocks", blocks}, {"batch", batch},         {"rel_err", rel_err}};
  if (!softmax.empty()) json["softmax"] = softmax;
  json["out_of_memory"] = out_of_memory;
  if (out_of_memory) return json;
  json["ms_median"] = ms_median, json["ms_p10"] = ms_p10, json["ms_p90"] = ms_p90;
  json[language() ? "tokens_per_second" : "images_per_second"] = language() ? tokens_per_second() : images_per_second();
  json["peak_bytes"] = peak_bytes;
  for (const ProfileRow& one : profile)
    json["profile"].push_back({{"name", one.name}, {"ms", one.ms}, {"calls", one.calls}});
  return json;
}

std::vector<ModelRow> run_model_benchmark(const std::vector<WorkloadOptions>& models, const ModelSettings& settings,
                                          Shelf& shelf) {
  std::vector<ModelRow> rows;
  std::vector<std::size_t> measured;  // places of rows
  std::vector<Contestant> contestants;
  for (const WorkloadOptions& options : models) {
    rows.push_back(row_of(options, settings));
    try {
      auto one = std::make_shared<BenchedModel>(options, settings, shelf);
      describe(rows.back(), *one, settings);
      contestants.push_back({[one] { one->run(); }});
      measured.push_back(rows.size() - 1);
    } catch (const c10::OutOfMemoryError&) {
      rows.back().out_of_memory = true;
      rows.back().tokens = tokens_of(options);
      if (options.attention == "mhla")
        rows.back().blocks = is_language_model(options.model) ? options.blocks : options.blocks * options.blocks;
    }
  }
  race(contestants, Stopwatch(settings.device), settings.min_seconds);
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const Spread times = spread(contestants[i].seconds);
    ModelRow& row = rows[measured[i]];
    row.ms_median = 1e3 * times.median, row.ms_p10 = 1e3 * times.p10, row.ms_p90 = 1e3 * times.p90;
  }
  return rows;
}

}  // namespace mhla::cli::bench
