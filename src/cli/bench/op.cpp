// `mhla bench op`: the operator against the same formula in torch, linear attention and softmax attention.
#include "cli/bench/op.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>

#include "cli/bench/chart.hpp"
#include "cli/bench/run.hpp"
#include "cli/bench/tables.hpp"
#include "cli/failure.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/device.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/measure.hpp"
#include "cli/support/output.hpp"
#include "cli/support/progress.hpp"
#include "io/file.hpp"

namespace mhla::cli::bench {
namespace {

struct OpOptions {
  std::string device = "cpu";
  std::vector<std::string> shapes;
  std::vector<std::string> impls;
  std::vector<std::string> passes = {"fwd", "fwd+bwd"};
  std::vector<std::string> normalizers;
  std::string dtype;
  int threads = 0;
  std::optional<double> min_time, peer_time;
  bool n_sweep = false;
  std::int64_t n_max = 1 << 20;
  bool quick = false;
  bool fresh_memory = false;
  std::string chart;
  Output output;

  bool on_gpu() const { return device == "cuda"; }
};

constexpr double kQuickTime = 0.02;

void check_device(const OpOptions& options) {
  if (!options.on_gpu()) return;
  if (device_count(Device::cuda) == 0)
    throw UsageError("--device is cuda, but there is no GPU, no driver, or this build has no CUDA back end");
  if (!torch::cuda::is_available())
    throw UsageError("--device is cuda, but this program's torch was built without CUDA");
}

// What the models of a shape use; on a GPU also the other of none and paper.
std::vector<Normalizer> normalizers(const OpOptions& options, const Shape& shape) {
  std::vector<Normalizer> result;
  result.reserve(options.normalizers.size());
  for (const std::string& normalizer : options.normalizers) result.push_back(parse_normalizer(normalizer));
  if (!result.empty()) return result;
  if (options.on_gpu() && !shape.causal()) return {Normalizer::none, Normalizer::paper};
  return {shape.problem.options.normalizer};
}

// The shapes asked for, in the asked type, once per normaliser.
std::vector<Shape> chosen_shapes(const OpOptions& options) {
  std::vector<Shape> shapes;
  if (options.n_sweep) {
    for (const std::int64_t n : sweep_tokens(options.n_max)) shapes.push_back(sweep_shape(n));
  } else if (!options.shapes.empty()) {
    for (const std::string& name : options.shapes) shapes.push_back(shape_named(name));
  } else {
    for (const Shape& shape : all_shapes())
      if (shape.name.starts_with("tiny") == options.quick) shapes.push_back(shape);
  }
  std::vector<Shape> result;
  for (Shape& shape : shapes) {
    if (options.on_gpu()) shape = shape.on_gpu();
    shape.problem.dtype = parse_dtype(options.dtype);
    if (options.quick) {
      shape.problem.batch = 1;
      shape.problem.heads = shape.problem.kv_heads = std::min<std::int64_t>(shape.problem.heads, 2);
    }
    for (const Normalizer normalizer : normalizers(options, shape)) {
      result.push_back(shape);
      result.back().problem.options.normalizer = normalizer;
    }
  }
  return result;
}

OpOptions with_defaults(OpOptions options) {
  if (options.impls.empty()) options.impls = usual_impls(parse_device(options.device));
  if (options.dtype.empty()) options.dtype = options.on_gpu() ? "bf16" : "f32";
  if (!options.min_time) options.min_time = options.on_gpu() ? 0.2 : 0.5;
  if (!options.peer_time) options.peer_time = options.on_gpu() ? 0.1 : 10.0;
  if (options.quick) options.min_time = std::min(*options.min_time, kQuickTime);
  return options;
}

struct OpFindings {
  std::vector<Row> rows;
  std::vector<std::string> left_out, failed;
};

// A shape that fails is noted and the others are still measured.
OpFindings measure(const OpOptions& options, Settings settings) {
  const std::vector<Shape> shapes = chosen_shapes(options);
  OpFindings findings;
  Progress progress("bench op", static_cast<double>(shapes.size() * options.passes.size()));
  for (const Shape& shape : shapes)
    for (const std::string& pass : options.passes) {
      settings.backward = pass == "fwd+bwd";
      settings.impls = options.impls;
      // Softmax knows no normaliser: once per shape and pass is enough.
      const auto measured = [&](const Row& row) {
        return row.softmax() && row.shape == shape.name && row.pass == pass;
      };
      if (std::ranges::any_of(findings.rows, measured))
        std::erase_if(settings.impls, [](const std::string& impl) { return impl.starts_with("sdpa"); });
      progress.advance(0.0, shape.name + " " + pass);
      try {
        const auto rows = run_benchmark(shape, settings, [&](const std::string& why) {
          findings.left_out.push_back(fmt::format("{} {}", pass, why));
        });
        findings.rows.insert(findings.rows.end(), rows.begin(), rows.end());
      } catch (const std::exception& error) {
        findings.failed.push_back(fmt::format("{} at {}, normalizer {}: {}", pass, shape.name,
                                              name(shape.problem.options.normalizer), failure_message(error)));
      }
      progress.advance(1.0, shape.name + " " + pass);
    }
  progress.finish();
  return findings;
}

int run_op(const OpOptions& given) {
  check_device(given);
  const OpOptions options = with_defaults(given);
  use_threads(options.threads);
  if (!options.fresh_memory) keep_freed_memory();
  Settings settings;
  settings.min_seconds = *options.min_time;
  settings.peer_seconds = *options.peer_time;
  settings.bandwidth = copy_bandwidth(options.on_gpu() ? torch::Device(torch::kCUDA, 0) : torch::kCPU);
  if (options.on_gpu()) settings.device_name = device_description(Device::cuda, 0);
  const OpFindings findings = measure(options, settings);

  std::ostream& text = options.output.text();
  const std::string machine = fmt::format(
      "{}; copy {:.1f} GB/s", options.on_gpu() ? settings.device_name : machine_line(), settings.bandwidth / 1e9);
  text << machine << "\n\n" << all_rows_table(findings.rows) << '\n';
  if (!options.n_sweep) text << comparison_tables(findings.rows);
  for (const std::string& why : findings.left_out) text << "left out: " << why << '\n';
  for (const std::string& why : findings.failed) text << "FAILED: " << why << '\n';
  const auto exponents = options.n_sweep ? sweep_exponents(findings.rows) : std::map<std::string, double>{};
  for (const auto& [key, exponent] : exponents) text << fmt::format("time of {} grows as N^{:.3f}\n", key, exponent);

  io::Json json = io::Json::array();
  for (const Row& row : findings.rows) {
    json.push_back(row.json());
    if (const auto found = exponents.find(row.pass + " " + row.impl); found != exponents.end())
      json.back()["exponent"] = found->second;
  }
  options.output.json(json);
  if (!options.chart.empty()) io::write_file(options.chart, draw_chart(findings.rows, machine));
  return findings.failed.empty() ? 0 : 1;
}

}  // namespace

void add_op(CLI::App& bench, Outcome& outcome) {
  auto* command =
      bench.add_subcommand("op", "Time the operator against torch's composed formula, linear attention and SDPA");
  auto options = std::make_shared<OpOptions>();
  const auto list = [&](const char* flag, std::vector<std::string>& values, const char* about) {
    return command->add_option(flag, values, about)->delimiter(',')->type_name("NAME");
  };
  add_cpu_or_cuda_option(*command, options->device);
  std::string listed;
  std::vector<std::string> names;
  for (const Shape& shape : all_shapes()) {
    listed +=
        fmt::format("\n  {:<12} {}: {}, on a GPU {}", shape.name, shape.about, shape.sizes(), shape.on_gpu().sizes());
    names.push_back(shape.name);
  }
  list("--shape", options->shapes, "Shapes to run")->check(shown_choices(names))->default_str("all but the tiny ones");
  list("--impl", options->impls, "Implementations to run")
      ->check(CLI::IsMember(all_impls()))
      ->default_str("mhla, composed, linear and softmax");
  list("--passes", options->passes, "Passes to run: forward alone, or with backward")
      ->check(CLI::IsMember({"fwd", "fwd+bwd"}))
      ->capture_default_str();
  list("--normalizer", options->normalizers, "Normalizers of the operator")
      ->check(CLI::IsMember({"none", "paper", "authors"}))
      ->default_str("what the models of a shape use; on a GPU none and paper, at causal shapes none");
  command->add_option("--dtype", options->dtype, "Element type")
      ->check(CLI::IsMember({"f32", "f64", "bf16", "f16"}))
      ->type_name("NAME")
      ->default_str("f32, on a GPU bf16");
  add_threads_option(*command, options->threads);
  command
      ->add_option("--min-time", options->min_time,
                   "Seconds of timing per implementation: at least seven runs (25 on a GPU) or five times as long, at "
                   "most 1,000 runs")
      ->check(within(0.0, 3600.0))
      ->type_name("SECONDS")
      ->default_str("0.5, on a GPU 0.2");
  command
      ->add_option("--peer-time", options->peer_time,
                   "Leave out linear and softmax where one run would take longer than this; the output says so")
      ->check(within(0.0, 3600.0))
      ->type_name("SECONDS")
      ->default_str("10, on a GPU 0.1");
  command->add_flag(
      "--n-sweep", options->n_sweep,
      "Instead of shapes: N = 256, 1024, ... in sqrt(N) blocks, the most for which the operator is linear, "
      "and the exponent of time over N");
  command->add_option("--n-max", options->n_max, "Largest N of --n-sweep")
      ->check(within(1024, 1 << 24))
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--quick", options->quick, "Tiny shapes and short timing, to see that everything works");
  command->add_flag(
      "--fresh-memory", options->fresh_memory,
      "Leave the allocator as it is by default: large freed memory goes back to the system, and every run "
      "clears its pages anew. This costs the composed formula most");
  command->add_option("--chart", options->chart, "Also draw time over the floor, per shape and implementation, as SVG")
      ->type_name("FILE");
  options->output.add_option(*command);
  command->footer("Shapes (B, H, N, D, M):" + listed);
  command->callback([options, &outcome] { outcome.exit_code = run_op(*options); });
}

}  // namespace mhla::cli::bench
