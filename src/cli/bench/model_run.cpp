// The models of a benchmark: made, checked, timed.
#include "cli/bench/model_run.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/support/measure.hpp"
#include "cli/support/operator_call.hpp"
#include "mhla/torch.hpp"
#include "train/adamw.hpp"
#include "train/autocast.hpp"
#include "train/parameters.hpp"

namespace mhla::cli::bench {
namespace {

constexpr double kLearningRate = 1e-4;

// Training under autocast keeps parameters in float32; inference has them in the type of the benchmark.
class BenchedModel {
 public:
  BenchedModel(const WorkloadOptions& options, const ModelSettings& settings)
      : settings_(settings), low_(settings.dtype != torch::kFloat),
        workload_(make_workload(options, settings.batch, settings.device)), x_(workload_->input) {
    model().train(settings.training);
    check();
    if (low_ && !settings.training) model().to(settings.dtype), x_ = x_.to(settings.dtype);
    if (settings.training)
      optimizer_.emplace(
          train::trained_parameters(model(), [&](const std::string& name) { return model().decays(name); }),
          train::AdamWOptions{});
  }

  void run() {
    if (!settings_.training) {
      const torch::NoGradGuard no_gradient;
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
  Workload& workload() { return *workload_; }
  models::Model& model() { return workload_->model(); }

 private:
  // The output for one image against double, for bf16 against float32; dropout and batch statistics are off.
  void check() {
    const torch::NoGradGuard no_gradient;
    const at::Tensor image = x_.slice(0, 0, 1);
    model().eval();
    at::Tensor found, exact;
    {
      const train::Autocast autocast(settings_.device, low_);
      found = workload_->forward(image);
    }
    if (low_) {
      exact = workload_->forward(image);
    } else {
      model().to(torch::kDouble);
      exact = workload_->forward(image.to(torch::kDouble));
      model().to(torch::kFloat);
    }
    model().train(settings_.training);
    relative_error_ = relative_rms(found, exact);
    const double limit = low_ ? 8e-2 : 1e-4;
    if (!(relative_error_ <= limit))
      throw Error(fmt::format("{} with {} at {} px: the output is off by {:.1e}, more than {:.0e}",
                              workload_->options.model, workload_->options.attention, workload_->options.size,
                              relative_error_, limit));
  }

  ModelSettings settings_;
  bool low_;
  std::unique_ptr<Workload> workload_;
  at::Tensor x_;  // its input, in the type of the benchmark
  std::optional<train::AdamW> optimizer_;
  double relative_error_ = 0.0;
};

ModelRow row_of(BenchedModel& benched, const ModelSettings& settings) {
  const WorkloadOptions& options = benched.workload().options;
  ModelRow row{.model = options.model,
               .attention = options.attention,
               .pass = settings.training ? "train" : "infer",
               .device = settings.device.is_cuda() ? "cuda" : "cpu",
               .dtype = settings.dtype == torch::kFloat ? "f32" : "bf16",
               .height = options.size,
               .width = options.size,
               .batch = settings.batch};
  row.tokens = benched.workload().tokens();
  if (const at::Tensor mixing = benched.workload().first_mixing(); mixing.defined()) row.blocks = mixing.size(0);
  row.rel_err = benched.relative_error();
  return row;
}

}  // namespace

std::string ModelRow::label() const {
  if (attention != "mhla") return attention;
  return fmt::format("MHLA, M = {}", blocks);
}

io::Json ModelRow::json() const {
  return {{"model", model},
          {"attention", attention},
          {"pass", pass},
          {"device", device},
          {"dtype", dtype},
          {"height", height},
          {"width", width},
          {"tokens", tokens},
          {"blocks", blocks},
          {"batch", batch},
          {"ms_median", ms_median},
          {"ms_p10", ms_p10},
          {"ms_p90", ms_p90},
          {"images_per_second", images_per_second()},
          {"peak_bytes", peak_bytes},
          {"rel_err", rel_err}};
}

std::vector<ModelRow> run_model_benchmark(const std::vector<WorkloadOptions>& models, const ModelSettings& settings,
                                          const std::function<void(const std::string&)>& left_out) {
  std::vector<ModelRow> rows;
  std::vector<std::shared_ptr<BenchedModel>> benched;
  std::vector<Contestant> contestants;
  for (const WorkloadOptions& options : models) try {
      auto one = std::make_shared<BenchedModel>(options, settings);
      one->run();
      ModelRow row = row_of(*one, settings);
      one->model().zero_grad();
      row.peak_bytes = peak_allocation(settings.device.type(), [&] { one->run(); });
      rows.push_back(row);
      benched.push_back(one);
      contestants.push_back({[one] { one->run(); }});
    } catch (const c10::OutOfMemoryError&) {
      left_out(fmt::format("{} with {} at {} px, batch {}: out of memory", options.model, options.attention,
                           options.size, settings.batch));
    }
  race(contestants, Stopwatch(settings.device), settings.min_seconds);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Spread times = spread(contestants[i].seconds);
    rows[i].ms_median = 1e3 * times.median, rows[i].ms_p10 = 1e3 * times.p10, rows[i].ms_p90 = 1e3 * times.p90;
  }
  return rows;
}

}  // namespace mhla::cli::bench
