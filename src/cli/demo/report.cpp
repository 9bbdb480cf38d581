// Builds the report page from the findings.
#include "cli/demo/report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/support/measure.hpp"
#include "cli/support/output.hpp"
#include "io/png.hpp"
#include "report/heat_map.hpp"

namespace mhla::cli {
namespace {

using report::LineChart;
using report::html::Report;

double tokens_of(const bench::Row& row) { return std::stod(row.shape.substr(2)); }

const bench::Row* find_row(const std::vector<bench::Row>& sweep, const std::string& impl, double tokens) {
  const auto found =
      std::ranges::find_if(sweep, [&](const bench::Row& row) { return row.impl == impl && tokens_of(row) == tokens; });
  return found == sweep.end() ? nullptr : &*found;
}

// The row of `impl` with the most tokens.
const bench::Row& largest_row(const std::vector<bench::Row>& sweep, const std::string& impl) {
  const bench::Row* best = nullptr;
  for (const bench::Row& row : sweep)
    if (row.impl == impl && (best == nullptr || tokens_of(row) > tokens_of(*best))) best = &row;
  if (best == nullptr) throw Error(fmt::format("sweep has no rows of {}", impl));
  return *best;
}

std::string times(double ratio) {
  return ratio >= 10.0 ? fmt::format("{:.0f}×", ratio) : fmt::format("{:.1f}×", ratio);
}

report::Series sweep_series(const std::vector<bench::Row>& sweep, const std::string& impl, const std::string& label) {
  report::Series line{label, {}, {}};
  for (const bench::Row& row : sweep)
    if (row.impl == impl) {
      line.x.push_back(tokens_of(row));
      line.y.push_back(1e3 * row.ms_median / tokens_of(row));
    }
  return line;
}

const MethodStatistics& method(const DemoFindings& findings, const std::string& name) {
  return *std::ranges::find(findings.analysis.whole, name, &MethodStatistics::method);
}

report::Series stream_series(const std::vector<StreamPoint>& points, const std::string& label, bool markers) {
  report::Series line{label, {}, {}, false, markers};
  for (const StreamPoint& point : points) {
    line.x.push_back(static_cast<double>(point.tokens));
    line.y.push_back(point.microseconds);
  }
  return line;
}

void add_pictures(Report& report, const DemoFindings& f) {
  const DrawnPictures& drawn = f.drawn;
  if (drawn.model.empty()) return;
  report.section(fmt::format("{} pictures of {} classes, drawn from noise in {:.0f} s",
                             drawn.count * std::ssize(drawn.classes), drawn.classes.size(), drawn.seconds));
  report.paragraph(
      fmt::format("A diffusion transformer with MHLA starts from noise and a class and takes {} steps to a picture of "
                  "{} x {} pixels. The command mhla sample draws more of them.",
                  drawn.steps, drawn.height, drawn.width));
  std::vector<report::html::Picture> pictures;
  pictures.reserve(drawn.classes.size());
  for (const DrawnClass& one : drawn.classes)
    pictures.push_back({io::encode_png(one.pictures.rgb, one.pictures.width, one.pictures.height), one.name, ""});
  report.pictures(pictures, "", fmt::format("Drawn on this machine by {}.", drawn.model));
}

void add_rank(Report& report, const DemoFindings& f) {
  const auto& linear = method(f, "linear");
  const auto& mhla = method(f, "mhla");
  const auto& softmax = method(f, "softmax");
  report.section(
      fmt::format("Blocks lift the rank of linear attention from {} to {}", linear.values.rank, mhla.values.rank));
  report.paragraph(
      fmt::format("Linear attention squeezes all tokens through one d × d summary, so its attention matrix never has "
                  "more than d = {} "
                  "independent rows. MHLA keeps one summary per block of tokens and lets every block mix them its own "
                  "way: the bound becomes "
                  "the sum over blocks of min(tokens in the block, d), here {}. Softmax reaches {} of {}.",
                  f.dim, mhla.rank_bound, softmax.values.rank, softmax.tokens));
  std::vector<report::html::Picture> pictures = f.analysis.heat_maps;
  for (auto& picture : pictures)
    picture.title = picture.title == "softmax" ? "Softmax" : picture.title == "linear" ? "Linear attention" : "MHLA";
  report.pictures(pictures, report::colour_scale_svg(),
                  "How much each token (row) looks at each other token (column), in block order. Colour is the weight "
                  "relative to looking "
                  "everywhere alike.");
  report.table(statistics_header(), statistics_rows(f.analysis.whole));
  report.chart(rank_chart(f.analysis).svg(),
               "Numerical rank by singular values, in double. No measured rank exceeds its bound.");
  report.chart(entropy_chart(f.analysis).svg(),
               "The lower the entropy, the more a query prefers some tokens over others.");
  report.note(
      fmt::format("Input: an image-like random field, {}, d = {}; mixing matrix as initialised in the paper. Sparsity "
                  "is the share of "
                  "weights below a tenth of the uniform weight.",
                  f.partition.describe(), f.dim));
}

void add_speed(Report& report, const DemoFindings& f) {
  const bench::Row& softmax = largest_row(f.sweep, "sdpa");
  const bench::Row& same = *find_row(f.sweep, "mhla", tokens_of(softmax));
  report.section(fmt::format("At {} tokens MHLA is {} as fast as softmax attention", grouped(tokens_of(softmax)),
                             times(softmax.ms_median / same.ms_median)));
  report.paragraph(fmt::format("{} {} Time grows as N^{:.2f} for MHLA and N^{:.2f} for softmax.",
                               overtaken_sentence(f.sweep, "sdpa", "Softmax"),
                               overtaken_sentence(f.sweep, "linear", "Linear attention in PyTorch"),
                               sweep_exponent(f.sweep, "mhla"), sweep_exponent(f.sweep, "sdpa")));
  LineChart chart{"Time per token, forward pass", "tokens N", "µs per token", true, true};
  chart.series = {sweep_series(f.sweep, "mhla", "MHLA"), sweep_series(f.sweep, "sdpa", "softmax (PyTorch SDPA)"),
                  sweep_series(f.sweep, "linear", "linear (PyTorch)"),
                  sweep_series(f.sweep, "composed", "MHLA formula in PyTorch")};
  report.chart(chart.svg(),
               "A flat line is an operator whose cost grows in step with the number of tokens. Median of repeated "
               "runs, taken in turns.");
  std::vector<std::vector<std::string>> rows;
  for (const bench::Row& row : f.sweep) {
    if (row.impl != "mhla") continue;
    const auto cell = [&](const char* impl) {
      const bench::Row* other = find_row(f.sweep, impl, tokens_of(row));
      return other == nullptr
                 ? std::string("not run")
                 : fmt::format("{} ms ({})", three_digits(other->ms_median), times(other->ms_median / row.ms_median));
    };
    rows.push_back({grouped(tokens_of(row)), fmt::format("{} ms", three_digits(row.ms_median)), cell("sdpa"),
                    cell("linear"), cell("composed"), fmt::format("{:.0f} %", 100.0 * row.gflops / row.peak_gflops)});
  }
  report.table({"tokens", "MHLA", "softmax", "linear", "MHLA in PyTorch", "of sgemm rate"}, rows);
  report.note(
      fmt::format("One head, D = 64, √N blocks, float32, no normalizer. In brackets: time relative to MHLA. The last "
                  "column sets MHLA's "
                  "arithmetic against a large matrix product on the same threads ({:.0f} GFLOP/s). Every result was "
                  "checked before it was timed: "
                  "the largest relative error of MHLA was {:.0e}.",
                  same.peak_gflops, std::ranges::max(f.sweep, {}, [](const bench::Row& row) {
                                      return row.impl == "mhla" ? row.rel_err : 0.0;
                                    }).rel_err));
}

void add_stream(Report& report, const DemoFindings& f) {
  const StreamRun& run = f.stream;
  const StreamPoint& last = run.mhla.back();
  const StreamPoint& cache = run.softmax.back();
  report.section(fmt::format("After {} tokens a token costs {:.2f} times what it cost at the start",
                             grouped(static_cast<double>(last.tokens)), flatness(run.mhla)));
  report.paragraph(
      fmt::format("A causal layer read {} tokens one by one. The last tenth took {:.2f} times as long per token as the "
                  "first tenth ({} µs at the end), "
                  "and the state never grew beyond {:.2f} MB. Softmax attention with a cache of keys and values needs "
                  "{} µs per token and {:.0f} MB at that length.",
                  grouped(static_cast<double>(last.tokens)), flatness(run.mhla), three_digits(last.microseconds),
                  last.bytes / 1e6, three_digits(cache.microseconds), cache.bytes / 1e6));
  LineChart chart{"Time per generated token", "tokens read so far", "µs per token", false, true};
  chart.series = {stream_series(run.mhla, "MHLA", false), stream_series(run.softmax, "softmax with cache", true)};
  report.chart(chart.svg(),
               "MHLA: mean over stretches of 1,000 tokens, re-mixing at block borders included. Softmax: median of 15 "
               "calls at that cache length.");
  report.note(
      fmt::format("{} heads, D = {}, blocks of {} tokens, float32; MHLA on one thread. The mixing matrix covers {} "
                  "blocks; beyond them the weights go by "
                  "distance (policy \"clamp\").",
                  run.heads, run.dim, run.block, run.trained_blocks));
}

void add_checks(Report& report, const DemoFindings& f) {
  const auto failed = std::ranges::count_if(f.checks, [](const CheckRow& row) { return !row.good(); });
  int calls = 0;
  for (const CheckRow& row : f.checks) calls += row.calls;
  report.section(failed == 0 ? fmt::format("All {} self-check calls agree with the double reference", calls)
                             : fmt::format("{} self-checks FAILED on this machine", failed));
  report.paragraph(
      "Fast kernels against the definition in double precision, forward and backward, over feature maps, both "
      "algorithms, ragged "
      "one-, two- and three-dimensional partitions and grouped heads. Numbers are relative RMS errors, the worst of "
      "each row.");
  std::vector<std::vector<std::string>> rows;
  rows.reserve(f.checks.size());
  for (const CheckRow& row : f.checks) rows.push_back(check_cells(row));
  report.table(check_header(), rows);
}

}  // namespace

std::int64_t overtaken_from(const std::vector<bench::Row>& sweep, const std::string& impl) {
  std::int64_t from = 0;
  for (const bench::Row& row : sweep) {
    if (row.impl != impl) continue;
    const bench::Row* ours = find_row(sweep, "mhla", tokens_of(row));
    if (ours == nullptr) continue;
    if (ours->ms_median >= row.ms_median)
      from = 0;
    else if (from == 0)
      from = static_cast<std::int64_t>(tokens_of(row));
  }
  return from;
}

double sweep_exponent(const std::vector<bench::Row>& sweep, const std::string& impl) {
  std::vector<double> n;
  std::vector<double> ms;
  for (const bench::Row& row : sweep)
    if (row.impl == impl) {
      n.push_back(tokens_of(row));
      ms.push_back(row.ms_median);
    }
  return fitted_exponent(n, ms);
}

std::string overtaken_sentence(const std::vector<bench::Row>& sweep, const std::string& impl,
                               const std::string& called) {
  const std::int64_t from = overtaken_from(sweep, impl);
  if (from == 0)
    return fmt::format("{} is still faster at {} tokens.", called, grouped(tokens_of(largest_row(sweep, impl))));
  const bool always =
      std::ranges::all_of(sweep, [&](const bench::Row& row) { return tokens_of(row) >= static_cast<double>(from); });
  return fmt::format("{} is slower than MHLA from {} tokens on{}.", called, grouped(static_cast<double>(from)),
                     always ? ", the fewest measured" : "");
}

std::string demo_page(const DemoFindings& f) {
  Report report("Multi-Head Linear Attention on this machine", f.machine);
  report.paragraph(
      "MHLA cuts the tokens into blocks, summarises each block once, and lets every block read its own learned mixture "
      "of the summaries: "
      "the cost of linear attention, without its loss of rank.");
  const bench::Row& softmax = largest_row(f.sweep, "sdpa");
  const bench::Row& same = *find_row(f.sweep, "mhla", tokens_of(softmax));
  const bench::Row& longest = largest_row(f.sweep, "mhla");
  const auto& mhla = method(f, "mhla");
  report.key_figures({
      {times(softmax.ms_median / same.ms_median),
       fmt::format("faster than softmax at {} tokens", grouped(tokens_of(softmax)))},
      {fmt::format("{} vs {}", mhla.values.rank, method(f, "linear").values.rank),
       "rank of the attention matrix, MHLA and linear"},
      {fmt::format("{} µs", three_digits(1e3 * longest.ms_median / tokens_of(longest))),
       fmt::format("per token and head at {} tokens", grouped(tokens_of(longest)))},
      {fmt::format("{} µs", three_digits(f.stream.mhla.back().microseconds)),
       fmt::format("per streamed token after {}", grouped(static_cast<double>(f.stream.mhla.back().tokens)))},
  });
  add_pictures(report, f);
  add_speed(report, f);
  add_rank(report, f);
  add_stream(report, f);
  add_checks(report, f);
  return report.page();
}

}  // namespace mhla::cli
