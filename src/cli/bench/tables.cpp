// Tables of benchmark rows.
#include "cli/bench/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/support/measure.hpp"
#include "cli/support/output.hpp"

namespace mhla::cli::bench {

std::string all_rows_table(const std::vector<Row>& rows) {
  std::vector<std::vector<std::string>> lines;
  for (const Row& row : rows) {
    const auto same = [&](const Row& other) {
      return other.impl == "composed" && other.shape == row.shape && other.pass == row.pass &&
             (other.normalizer == row.normalizer || row.softmax());
    };
    const auto composed = std::ranges::find_if(rows, same);
    lines.push_back({row.shape, row.pass, row.normalizer, row.impl, three_digits(row.ms_median),
                     fmt::format("{}-{}", three_digits(row.ms_p10), three_digits(row.ms_p90)),
                     composed == rows.end() ? "-" : fmt::format("{:.2f}x", composed->ms_median / row.ms_median),
                     fmt::format("{:.1f}", row.gflops), fmt::format("{:.0f} %", 100.0 * row.gflops / row.peak_gflops),
                     three_digits(row.floor_ms), fmt::format("{:.1e}", row.rel_err),
                     fmt::format("{:.2f}", static_cast<double>(row.extra_bytes) / 1e6)});
  }
  const bool on_cpu = rows.empty() || rows.front().device == "cpu";
  return table({"shape", "pass", "normalizer", "impl", "ms", "p10-p90", "vs composed", "GFLOP/s",
                on_cpu ? "of sgemm" : "of matmul", "floor ms", "rel err", "extra MB"},
               lines);
}

double Comparison::best_peer_ms() const {
  double best = std::numeric_limits<double>::infinity();
  for (const auto& [impl, time] : ms)
    if (impl != "mhla") best = std::min(best, time);
  return best;
}

std::vector<Comparison> compare(const std::vector<Row>& rows) {
  std::vector<Comparison> comparisons;
  const auto belongs = [](const Row& row, const Comparison& to) {
    return row.shape == to.shape && row.pass == to.pass && (row.softmax() || row.normalizer == to.normalizer);
  };
  for (const Row& row : rows)
    if (!row.softmax() && std::ranges::none_of(comparisons, [&](const auto& c) { return belongs(row, c); }))
      comparisons.push_back({row.shape, row.sizes, row.dtype, row.pass, row.normalizer, row.floor_ms, {}});
  for (Comparison& comparison : comparisons)
    for (const Row& row : rows)
      if (belongs(row, comparison)) comparison.ms[row.impl] = row.ms_median;
  return comparisons;
}

std::vector<std::string> compared_impls(const std::vector<Row>& rows) {
  std::vector<std::string> impls;
  for (const Row& row : rows)
    if (row.impl != "mhla" && std::ranges::find(impls, row.impl) == impls.end()) impls.push_back(row.impl);
  impls.emplace_back("mhla");
  return impls;
}

std::string comparison_tables(const std::vector<Row>& rows) {
  const std::vector<Comparison> comparisons = compare(rows);
  const std::vector<std::string> impls = compared_impls(rows);
  std::vector<std::string> header = {"shape (B, H, N, D, M)", "normalizer", "floor"};
  header.insert(header.end(), impls.begin(), impls.end());
  header.insert(header.end(), {"of floor", "vs best peer"});
  std::string text;
  for (const char* pass : {"fwd", "fwd+bwd"}) {
    std::vector<std::vector<std::string>> lines;
    std::string dtype;
    for (const Comparison& c : comparisons) {
      if (c.pass != pass) continue;
      dtype = c.dtype;
      std::vector<std::string> line = {c.shape + " " + c.sizes, c.normalizer, three_digits(c.floor_ms)};
      for (const std::string& impl : impls) line.push_back(c.ms.contains(impl) ? three_digits(c.ms.at(impl)) : "-");
      const double ours = c.ms.contains("mhla") ? c.ms.at("mhla") : std::numeric_limits<double>::quiet_NaN();
      const double ratio = c.best_peer_ms() / ours;
      line.push_back(ours > 0.0 ? fmt::format("{:.0f} %", 100.0 * c.floor_ms / ours) : "-");
      line.push_back(std::isfinite(ratio) ? fmt::format("{:.2f}x", ratio) : "-");
      lines.push_back(line);
    }
    if (lines.empty()) continue;
    text += fmt::format("{}, {}, median milliseconds\n", pass, dtype) + table(header, lines) + '\n';
  }
  return text;
}

std::map<std::string, double> sweep_exponents(const std::vector<Row>& rows) {
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> curves;
  for (const Row& row : rows) {
    auto& [n, ms] = curves[row.pass + " " + row.impl];
    n.push_back(std::stod(row.shape.substr(2)));
    ms.push_back(row.ms_median);
  }
  std::map<std::string, double> exponents;
  for (const auto& [key, curve] : curves)
    if (curve.first.size() >= 2) exponents[key] = fitted_exponent(curve.first, curve.second);
  return exponents;
}

}  // namespace mhla::cli::bench
