// States, groups of steps, rows.
#include "cli/bench/decode_run.hpp"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <optional>

#include "cli/bench/softmax_order.hpp"
#include "cli/support/measure.hpp"
#include "cli/support/output.hpp"

namespace mhla::cli::bench {
namespace {

constexpr int kStepsAtOnce = 4;   // are timed together, so that the host runs ahead as it does in a program
constexpr int kStepsBefore = 12;  // to warm up, and to choose softmax kernels

std::string dtype_name(at::ScalarType type) { return type == at::kBFloat16 ? "bf16" : "f32"; }

DecodeRow row_of(models::Lm& model, const DecodeSettings& settings) {
  DecodeRow row{.model = model.options.model,
                .attention = model.options.attention.front(),
                .device = settings.device.is_cuda() ? "cuda" : "cpu",
                .dtype = dtype_name(model.output_weight().scalar_type()),
                .context = settings.context,
                .batch = settings.batch};
  if (row.attention == "mhla") row.blocks = model.options.blocks, row.summaries = dtype_name(settings.summaries);
  return row;
}

// Steps from one state; there must be room for them.
class Decoding {
 public:
  Decoding(models::Lm& model, models::LmState state)
      : model_(model), state_(std::move(state)),
        ids_(at::ones({state_.batch()}, at::TensorOptions(at::kLong).device(state_.positions().device()))) {}

  void run(int steps) {
    for (int step = 0; step < steps; ++step) model_.step(state_, ids_);
  }

 private:
  models::Lm& model_;
  models::LmState state_;
  at::Tensor ids_;
};

void measure(DecodeRow& row, Decoding& decoding, const DecodeSettings& settings) {
  const Stopwatch stopwatch(settings.device);
  if (row.attention == "softmax" && settings.device.is_cuda()) {
    const SoftmaxChoice softmax = fastest_softmax(stopwatch, [&] { decoding.run(kStepsBefore / 4); });
    prefer_softmax(softmax);
    row.softmax = name(softmax);
  } else {
    decoding.run(kStepsBefore);
  }
  std::vector<double> seconds;
  for (int done = 0; done < settings.steps; done += kStepsAtOnce)
    seconds.push_back(stopwatch.time([&] { decoding.run(kStepsAtOnce); }).seconds / kStepsAtOnce);
  const Spread times = spread(seconds);
  const double all = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  row.ms_mean = 1e3 * all / static_cast<double>(seconds.size()), row.ms_p10 = 1e3 * times.p10,
  row.ms_p90 = 1e3 * times.p90;
}

}  // namespace

models::LmState made_state(const models::Lm& model, const DecodeSettings& settings, std::int64_t more) {
  constexpr std::int64_t kGrowing = 2;  // the axis that grows with the tokens
  const torch::NoGradGuard no_gradient;
  const models::LmState one = model.new_state(1, settings.context + more);
  const std::vector<std::int64_t> seen(static_cast<std::size_t>(settings.batch), settings.context);
  return model.state_with(seen, [&](std::size_t layer, const std::string& name, const at::Tensor& fresh) {
    if (!fresh.is_floating_point()) return fresh;
    std::vector<std::int64_t> sizes = fresh.sizes().vec();
    const at::Tensor& grown = one.layers()[layer].at(name);
    if (fresh.dim() > kGrowing) sizes[kGrowing] = grown.size(kGrowing);
    const bool summary = (name == "S" || name == "P") && model.options.attention.front() == "mhla";
    at::Tensor made = at::empty(sizes, fresh.options().dtype(summary ? settings.summaries : fresh.scalar_type()));
    return made.normal_();
  });
}

DecodeRow run_decode_benchmark(models::Lm& model, const DecodeSettings& settings) {
  const torch::NoGradGuard no_gradient;
  DecodeRow row = row_of(model, settings);
  const std::int64_t more = kStepsBefore + settings.steps + kStepsAtOnce;
  try {
    DecodeSettings one = settings;
    one.batch = 1;
    row.state_bytes = made_state(model, one, 0).bytes() * static_cast<std::size_t>(settings.batch);
    Decoding decoding(model, made_state(model, settings, more));
    measure(row, decoding, settings);
  } catch (const c10::OutOfMemoryError&) {
    row.out_of_memory = true;
  }
  return row;
}

io::Json DecodeRow::json() const {
  io::Json json = {{"model", model},   {"attention", attention},     {"device", device},
                   {"dtype", dtype},   {"context", context},         {"batch", batch},
                   {"blocks", blocks}, {"state_bytes", state_bytes}, {"out_of_memory", out_of_memory}};
  if (!summaries.empty()) json["summaries"] = summaries;
  if (!softmax.empty()) json["softmax"] = softmax;
  if (out_of_memory) return json;
  json["ms_mean"] = ms_mean, json["ms_p10"] = ms_p10, json["ms_p90"] = ms_p90;
  json["tokens_per_second"] = tokens_per_second();
  return json;
}

std::string decode_table(const std::vector<DecodeRow>& rows) {
  std::map<std::pair<std::int64_t, std::int64_t>, double> softmax_ms;
  for (const DecodeRow& row : rows)
    if (row.attention == "softmax" && !row.out_of_memory) softmax_ms[{row.context, row.batch}] = row.ms_mean;
  std::vector<std::vector<std::string>> lines;
  for (const DecodeRow& row : rows) {
    std::string attention = row.attention;
    if (!row.softmax.empty()) attention += " " + row.softmax;
    if (!row.summaries.empty()) attention += ", S in " + row.summaries;
    std::vector<std::string> cells = {std::to_string(row.batch), std::to_string(row.context), attention,
                                      row.blocks > 0 ? std::to_string(row.blocks) : "-"};
    const std::string megabytes = fmt::format("{:.1f}", static_cast<double>(row.state_bytes) / 1e6);
    const auto softmax = softmax_ms.find({row.context, row.batch});
    if (row.out_of_memory)
      cells.insert(cells.end(), {"out of memory", "-", "-", "-", megabytes});
    else
      cells.insert(
          cells.end(),
          {three_digits(row.ms_mean), three_digits(row.ms_p10) + "-" + three_digits(row.ms_p90),
           three_digits(row.tokens_per_second()),
           softmax == softmax_ms.end() ? "-" : fmt::format("{:.2f}x", softmax->second / row.ms_mean), megabytes});
    lines.push_back(cells);
  }
  return table({"batch", "context", "attention", "M", "ms", "p10-p90", "tokens/s", "vs softmax", "state MB"}, lines);
}

}  // namespace mhla::cli::bench
