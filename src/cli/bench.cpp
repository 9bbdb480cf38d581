// `mhla bench op`: the operator against the same formula in torch, linear attention and softmax attention.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "cli/bench_run.hpp"
#include "cli/commands.hpp"
#include "cli/machine.hpp"
#include "cli/measure.hpp"
#include "cli/output.hpp"
#include "cli/progress.hpp"

namespace mhla::cli {
namespace {

struct BenchOptions {
  std::string device = "cpu";
  std::vector<std::string> shapes;
  std::vector<std::string> impls = bench_impls();
  std::vector<std::string> passes = {"fwd", "fwd+bwd"};
  std::vector<std::string> normalizers;
  std::string dtype = "f32";
  int threads = 0;
  double min_time = 0.5;
  double peer_time = 10.0;
  bool n_sweep = false;
  std::int64_t n_max = 1 << 20;
  bool quick = false;
  bool fresh_memory = false;
  Output output;
};

constexpr double kQuickTime = 0.02;

// The shapes asked for, in the asked dtype, once per normaliser.
std::vector<BenchShape> chosen_shapes(const BenchOptions& options) {
  std::vector<BenchShape> shapes;
  if (options.n_sweep) {
    for (const std::int64_t n : sweep_tokens(options.n_max)) shapes.push_back(sweep_shape(n));
  } else if (!options.shapes.empty()) {
    for (const std::string& name : options.shapes) shapes.push_back(bench_shape(name));
  } else {
    for (const BenchShape& shape : bench_shapes())
      if (shape.name.starts_with("tiny") == options.quick) shapes.push_back(shape);
  }
  std::vector<BenchShape> result;
  for (BenchShape& shape : shapes) {
    shape.problem.dtype = parse_dtype(options.dtype);
    if (options.quick) {
      shape.problem.batch = 1;
      shape.problem.heads = shape.problem.kv_heads = std::min<std::int64_t>(shape.problem.heads, 2);
    }
    if (options.normalizers.empty()) result.push_back(shape);
    for (const std::string& normalizer : options.normalizers) {
      result.push_back(shape);
      result.back().problem.options.normalizer = parse_normalizer(normalizer);
    }
  }
  return result;
}

std::vector<std::vector<std::string>> table_rows(const std::vector<BenchRow>& rows) {
  std::vector<std::vector<std::string>> lines;
  for (const BenchRow& row : rows) {
    const auto same = [&](const BenchRow& other) {
      return other.impl == "composed" && other.shape == row.shape && other.pass == row.pass &&
             (other.normalizer == row.normalizer || row.impl == "sdpa");
    };
    const auto composed = std::ranges::find_if(rows, same);
    lines.push_back({row.shape, row.pass, row.normalizer, row.impl, three_digits(row.ms_median),
                     fmt::format("{}-{}", three_digits(row.ms_p10), three_digits(row.ms_p90)),
                     composed == rows.end() ? "-" : fmt::format("{:.2f}x", composed->ms_median / row.ms_median),
                     fmt::format("{:.1f}", row.gflops), fmt::format("{:.0f} %", 100.0 * row.gflops / row.peak_gflops),
                     three_digits(row.floor_ms), fmt::format("{:.1e}", row.rel_err),
                     fmt::format("{:.2f}", static_cast<double>(row.extra_bytes) / 1e6)});
  }
  return lines;
}

// Exponents of time over N, one per pass and implementation.
std::map<std::string, double> sweep_exponents(const std::vector<BenchRow>& rows) {
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> curves;
  for (const BenchRow& row : rows) {
    auto& [n, ms] = curves[row.pass + " " + row.impl];
    n.push_back(std::stod(row.shape.substr(2)));
    ms.push_back(row.ms_median);
  }
  std::map<std::string, double> exponents;
  for (const auto& [key, curve] : curves)
    if (curve.first.size() >= 2) exponents[key] = fitted_exponent(curve.first, curve.second);
  return exponents;
}

void run_bench(BenchOptions options) {
  use_threads(options.threads);
  if (!options.fresh_memory) keep_freed_memory();
  if (options.quick) options.min_time = std::min(options.min_time, kQuickTime);
  const std::vector<BenchShape> shapes = chosen_shapes(options);
  BenchSettings settings;
  settings.impls = options.impls;
  settings.min_seconds = options.min_time;
  settings.peer_seconds = options.peer_time;
  settings.bandwidth = copy_bandwidth();

  std::vector<BenchRow> rows;
  std::vector<std::string> left_out;
  Progress progress("bench op", static_cast<double>(shapes.size() * options.passes.size()));
  for (const BenchShape& shape : shapes)
    for (const std::string& pass : options.passes) {
      settings.backward = pass == "fwd+bwd";
      progress.advance(0.0, shape.name + " " + pass);
      const auto more =
          run_benchmark(shape, settings, [&](const std::string& why) { left_out.push_back(pass + " " + why); });
      rows.insert(rows.end(), more.begin(), more.end());
      progress.advance(1.0, shape.name + " " + pass);
    }
  progress.finish();

  std::ostream& text = options.output.text();
  text << fmt::format("{}; copy {:.1f} GB/s\n\n", machine_line(), settings.bandwidth / 1e9);
  text << table({"shape", "pass", "normalizer", "impl", "ms", "p10-p90", "vs composed", "GFLOP/s", "of sgemm",
                 "floor ms", "rel err", "extra MB"},
                table_rows(rows));
  for (const std::string& why : left_out) text << "left out: " << why << '\n';
  const auto exponents = options.n_sweep ? sweep_exponents(rows) : std::map<std::string, double>{};
  for (const auto& [key, exponent] : exponents) text << fmt::format("time of {} grows as N^{:.3f}\n", key, exponent);

  io::Json json = io::Json::array();
  for (const BenchRow& row : rows) {
    json.push_back(row.json());
    if (const auto found = exponents.find(row.pass + " " + row.impl); found != exponents.end())
      json.back()["exponent"] = found->second;
  }
  options.output.json(json);
}

}  // namespace

void add_bench(CLI::App& program, Outcome&) {
  auto* bench = program.add_subcommand("bench", "Measure speed");
  bench->require_subcommand(0, 1);
  bench->callback([bench] {
    if (bench->get_subcommands().empty())
      throw UsageError("bench: what to measure is missing; it may be: " + names_of_commands(*bench));
  });
  auto* command =
      bench->add_subcommand("op", "Time the operator against torch's composed formula, linear attention and SDPA");
  auto options = std::make_shared<BenchOptions>();
  const auto list = [&](const char* flag, std::vector<std::string>& values, const char* about) {
    return command->add_option(flag, values, about)->delimiter(',')->type_name("NAME");
  };
  command->add_option("--device", options->device, "Device to run on")
      ->check(CLI::IsMember({"cpu"}))
      ->capture_default_str();
  std::string shapes;
  for (const BenchShape& shape : bench_shapes()) shapes += fmt::format("\n  {:<12} {}", shape.name, shape.about);
  list("--shape", options->shapes, "Shapes to run (listed below); all but the tiny ones unless given");
  list("--impl", options->impls, "Implementations to run")->check(CLI::IsMember(bench_impls()))->capture_default_str();
  list("--passes", options->passes, "Passes to run")->check(CLI::IsMember({"fwd", "fwd+bwd"}))->capture_default_str();
  list("--normalizer", options->normalizers, "none, paper, reference; unless given, what the models of a shape use")
      ->check(CLI::IsMember({"none", "paper", "reference"}));
  command->add_option("--dtype", options->dtype, "Element type")
      ->check(CLI::IsMember({"f32", "f64", "bf16", "f16"}))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "Threads; 0 is torch's own choice")->capture_default_str();
  command->add_option("--min-time", options->min_time, "Seconds of timing per implementation")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command
      ->add_option("--peer-time", options->peer_time, "Leave out linear and sdpa where one run would take more seconds")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command->add_flag("--n-sweep", options->n_sweep,
                    "Instead of shapes: N from 256 to --n-max in sqrt(N) blocks, with the exponent of time over N");
  command->add_option("--n-max", options->n_max, "Largest N of --n-sweep")
      ->check(CLI::Range(1024, 1 << 24))
      ->capture_default_str();
  command->add_flag("--quick", options->quick, "Small batches and short timing, to see that everything works");
  command->add_flag("--fresh-memory", options->fresh_memory,
                    "Give large freed memory back to the system, as the allocator does by default, so that every run "
                    "clears pages anew");
  options->output.add_option(*command);
  command->footer("Shapes:" + shapes);
  command->callback([options] { run_bench(*options); });
}

}  // namespace mhla::cli
