// `mhla demo`: a minute's tour that ends in a page to look at.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/commands.hpp"
#include "cli/demo/drawing.hpp"
#include "cli/demo/report.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/measure.hpp"
#include "cli/support/output.hpp"
#include "cli/support/progress.hpp"
#include "io/file.hpp"
#include "io/png.hpp"

namespace mhla::cli {
namespace {

struct DemoOptions {
  std::string out = "out/demo";
  std::uint64_t seed = 1;
  bool quick = false;
  int threads = 0;
  Output output;
};

// Shares of the whole time, for the progress line.
constexpr double kDrawShare = 0.25;
constexpr double kCheckShare = 0.1;
constexpr double kRankShare = 0.2;
constexpr double kSpeedShare = 0.4;
constexpr double kStreamShare = 0.05;

struct Size {
  std::int64_t pictures, drawing_steps, side, dim, sweep_to, stream_tokens;
  double min_seconds, peer_seconds;
};
constexpr Size kFull = {2, 20, 28, 32, 1 << 18, 100'000, 0.15, 6.0};
constexpr Size kQuick = {1, 2, 16, 16, 1 << 12, 4'000, 0.01, 1.0};

void find_rank(DemoFindings& findings, const Size& size, std::uint64_t seed, Progress& progress) {
  AnalysisInput input;
  input.partition = Partition::grid({size.side, size.side}, {4, 4});
  const analysis::TokenSample sample = analysis::sample_tokens(input.partition, size.dim, seed);
  input.q = sample.q;
  input.k = sample.k;
  findings.partition = input.partition;
  findings.dim = size.dim;
  findings.analysis = analyze(input, [&](double share) { progress.advance(share * kRankShare, "rank and entropy"); });
}

void find_speed(DemoFindings& findings, const Size& size, Progress& progress) {
  bench::Settings settings;
  settings.impls = bench::usual_impls();
  settings.min_seconds = size.min_seconds;
  settings.peer_seconds = size.peer_seconds;
  settings.bandwidth = copy_bandwidth();
  const auto counts = bench::sweep_tokens(size.sweep_to);
  for (const std::int64_t n : counts) {
    const auto rows = bench::run_benchmark(bench::sweep_shape(n), settings, [](const std::string&) {});
    findings.sweep.insert(findings.sweep.end(), rows.begin(), rows.end());
    progress.advance(kSpeedShare / static_cast<double>(counts.size()), "speed over N");
  }
}

// The pictures as a file of their own; says what was drawn.
std::string save_pictures(const DrawnPictures& drawn, const std::filesystem::path& file) {
  if (drawn.model.empty()) return drawn.missing;
  io::write_file(file, io::encode_png(drawn.sheet.rgb, drawn.sheet.width, drawn.sheet.height));
  return fmt::format("{} of {} classes in {:.1f} s, {} steps each: {}", drawn.count * std::ssize(drawn.classes),
                     drawn.classes.size(), drawn.seconds, drawn.steps, file.string());
}

io::Json findings_json(const DemoFindings& f, bool good, const std::string& page) {
  io::Json sweep = io::Json::array();
  for (const bench::Row& row : f.sweep) sweep.push_back(row.json());
  io::Json stream = io::Json::array();
  for (const StreamPoint& point : f.stream.mhla)
    stream.push_back({{"tokens", point.tokens}, {"us_per_token", point.microseconds}, {"bytes", point.bytes}});
  return {{"ok", good},
          {"machine", machine_json()},
          {"report", page},
          {"pictures", f.drawn.count * std::ssize(f.drawn.classes)},
          {"drawing_seconds", f.drawn.seconds},
          {"attention", statistics_json(f.analysis.whole)},
          {"speed", sweep},
          {"exponent", sweep_exponent(f.sweep, "mhla")},
          {"faster_than_softmax_from", overtaken_from(f.sweep, "sdpa")},
          {"faster_than_linear_from", overtaken_from(f.sweep, "linear")},
          {"stream", stream},
          {"stream_flatness", flatness(f.stream.mhla)}};
}

int run_demo(const DemoOptions& options) {
  use_threads(options.threads);
  keep_freed_memory();
  const Size& size = options.quick ? kQuick : kFull;
  std::ostream& text = options.output.text();
  DemoFindings findings;
  findings.machine = machine_line();
  text << "Multi-Head Linear Attention on " << findings.machine << "\n" << std::endl;
  Progress progress("demo", 1.0);

  const std::filesystem::path folder(options.out);
  findings.drawn = draw_pictures(size.pictures, size.drawing_steps,
                                 [&](double share) { progress.advance(share * kDrawShare, "pictures"); });
  progress.finish();
  text << fmt::format("1. Pictures: {}\n", save_pictures(findings.drawn, folder / "pictures.png")) << std::endl;

  findings.checks = run_checks([&](double share) { progress.advance(share * kCheckShare, "self-check"); });
  const auto failed = std::ranges::count_if(findings.checks, [](const CheckRow& row) { return !row.good(); });
  progress.finish();
  text << fmt::format("2. Self-check against the double reference: {}\n",
                      failed == 0 ? "all good" : fmt::format("{} FAILED", failed))
       << std::endl;

  find_rank(findings, size, options.seed, progress);
  progress.finish();
  text << fmt::format("3. Attention matrices, {}, d = {}\n", findings.partition.describe(), size.dim)
       << table(statistics_header(), statistics_rows(findings.analysis.whole)) << std::endl;

  find_speed(findings, size, progress);
  progress.finish();
  text << fmt::format("4. Speed over N: {} {} MHLA grows as N^{:.2f}.\n",
                      overtaken_sentence(findings.sweep, "sdpa", "Softmax"),
                      overtaken_sentence(findings.sweep, "linear", "Linear attention in PyTorch"),
                      sweep_exponent(findings.sweep, "mhla"))
       << std::endl;

  findings.stream =
      run_stream(size.stream_tokens, [&](double share) { progress.advance(share * kStreamShare, "streaming"); });
  progress.finish();
  text << fmt::format(
              "5. Streaming {} tokens: {} µs per token at the end, {:.2f} times the start; state of {:.2f} MB\n",
              grouped(static_cast<double>(size.stream_tokens)), three_digits(findings.stream.mhla.back().microseconds),
              flatness(findings.stream.mhla), findings.stream.mhla.back().bytes / 1e6)
       << std::endl;

  const bool good = failed == 0 && within_bounds(findings.analysis);
  const std::filesystem::path page = folder / "report.html";
  io::write_file(page, demo_page(findings));
  text << "The report: " << std::filesystem::absolute(page).lexically_normal().string() << '\n';
  options.output.json(findings_json(findings, good, page.string()));
  return good ? 0 : 1;
}

}  // namespace

void add_demo(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<DemoOptions>();
  auto* command = program.add_subcommand(
      "demo", "A tour of a minute or two: pictures, correctness, rank, speed, streaming; writes a report");
  command->add_option("--out", options->out, "Folder to write report.html and pictures.png to")
      ->type_name("FOLDER")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the input whose attention is analysed")
      ->check(at_least<std::uint64_t>(0))
      ->type_name("N")
      ->capture_default_str();
  add_threads_option(*command, options->threads);
  command->add_flag("--quick", options->quick, "A few seconds instead of a minute, with less to see");
  options->output.add_option(*command);
  command->callback([options, &outcome] { outcome.exit_code = run_demo(*options); });
}

}  // namespace mhla::cli
