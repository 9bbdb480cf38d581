// Statistics, heat maps and curves of attention matrices.
#include "cli/analyze/run.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "cli/support/operator_call.hpp"
#include "report/heat_map.hpp"

namespace mhla::cli {
namespace {

constexpr int kCurvePoints = 8;
constexpr std::array kMethods = {"softmax", "linear", "mhla"};

struct Part {
  Partition partition;
  torch::Tensor q, k, mixing;
};

// The first `share` of the first axis.
Part leading_part(const AnalysisInput& input, double share) {
  std::vector<std::int64_t> sizes(input.partition.sizes().begin(), input.partition.sizes().end());
  sizes[0] = std::max<std::int64_t>(1, std::llround(share * static_cast<double>(sizes[0])));
  Part part{Partition::by_extent(sizes, input.partition.extents()), {}, {}, {}};
  part.q = input.q.slice(0, 0, part.partition.tokens());
  part.k = input.k.slice(0, 0, part.partition.tokens());
  // Blocks are numbered in raster order, so the leading blocks keep their numbers.
  part.mixing = input.mixing.defined()
                    ? input.mixing.slice(0, 0, part.partition.blocks()).slice(1, 0, part.partition.blocks())
                    : to_matrix(mixing_init(part.partition, input.init));
  return part;
}

torch::Tensor matrix_of(const std::string& method, const Part& part) {
  if (method == "softmax") return analysis::softmax_matrix(part.q, part.k);
  if (method == "linear") return analysis::linear_matrix(part.q, part.k);
  return analysis::mhla_matrix(part.q, part.k, part.mixing, part.partition);
}

std::int64_t bound_of(const std::string& method, const Part& part) {
  const std::int64_t n = part.partition.tokens();
  if (method == "softmax") return n;
  if (method == "linear") return std::min(n, part.q.size(1));
  return analysis::rank_bound(part.partition, part.q.size(1));
}

std::vector<std::byte> heat_map(const torch::Tensor& matrix) {
  const torch::Tensor values = matrix.to(torch::kDouble).contiguous();
  return report::heat_map_png(
      {{values.const_data_ptr<double>(), static_cast<std::size_t>(values.numel())}, values.size(0), values.size(1)});
}

report::Series series(const Analysis& result, const std::string& method, const std::string& label,
                      const std::function<double(const MethodStatistics&)>& value) {
  report::Series line{label, {}, {}};
  for (const MethodStatistics& row : result.curve)
    if (row.method == method) {
      line.x.push_back(static_cast<double>(row.tokens));
      line.y.push_back(value(row));
    }
  return line;
}

}  // namespace

Analysis analyze(const AnalysisInput& input, const std::function<void(double)>& step) {
  Analysis result;
  double total = 0.0;
  for (int i = 1; i <= kCurvePoints; ++i) total += std::pow(i, 2);
  for (int i = 1; i <= kCurvePoints; ++i) {
    const Part part = leading_part(input, static_cast<double>(i) / kCurvePoints);
    for (const std::string method : kMethods) {
      const torch::Tensor matrix = matrix_of(method, part);
      const MethodStatistics row{method, part.partition.tokens(), bound_of(method, part), analysis::statistics(matrix)};
      result.curve.push_back(row);
      if (i == kCurvePoints) {
        result.whole.push_back(row);
        result.heat_maps.push_back(
            {heat_map(analysis::block_ordered(matrix, part.partition)), method,
             fmt::format("rank {} of {}, entropy {:.2f} nats", row.values.rank, row.tokens, row.values.entropy)});
      }
      step(std::pow(i, 2) / total / kMethods.size());
    }
  }
  return result;
}

bool within_bounds(const Analysis& analysis) {
  return std::ranges::all_of(analysis.curve,
                             [](const MethodStatistics& row) { return row.values.rank <= row.rank_bound; });
}

report::LineChart rank_chart(const Analysis& result) {
  report::LineChart chart{"Rank of the attention matrix", "tokens N", "numerical rank"};
  const auto rank = [](const MethodStatistics& row) { return static_cast<double>(row.values.rank); };
  chart.series = {series(result, "mhla", "MHLA", rank), series(result, "softmax", "softmax", rank),
                  series(result, "linear", "linear", rank),
                  series(result, "mhla", "MHLA bound: sum of min(n_b, d)",
                         [](const MethodStatistics& row) { return static_cast<double>(row.rank_bound); })};
  chart.series.back().dashed = true;
  return chart;
}

report::LineChart entropy_chart(const Analysis& result) {
  report::LineChart chart{"Entropy of a row of the attention matrix", "tokens N", "mean entropy, nats"};
  const auto entropy = [](const MethodStatistics& row) { return row.values.entropy; };
  chart.series = {series(result, "mhla", "MHLA", entropy), series(result, "softmax", "softmax", entropy),
                  series(result, "linear", "linear", entropy),
                  series(result, "mhla", "uniform: log N",
                         [](const MethodStatistics& row) { return std::log(static_cast<double>(row.tokens)); })};
  chart.series.back().dashed = true;
  chart.y_from_zero = false;
  return chart;
}

std::vector<std::string> statistics_header() {
  return {"attention", "N", "rank", "rank bound", "effective rank", "entropy, nats", "sparsity"};
}

std::vector<std::vector<std::string>> statistics_rows(const std::vector<MethodStatistics>& rows) {
  std::vector<std::vector<std::string>> lines;
  lines.reserve(rows.size());
  for (const MethodStatistics& row : rows)
    lines.push_back({row.method, std::to_string(row.tokens), std::to_string(row.values.rank),
                     std::to_string(row.rank_bound), fmt::format("{:.1f}", row.values.effective_rank),
                     fmt::format("{:.3f}", row.values.entropy), fmt::format("{:.1f} %", 100.0 * row.values.sparsity)});
  return lines;
}

io::Json statistics_json(const std::vector<MethodStatistics>& rows) {
  io::Json json = io::Json::array();
  for (const MethodStatistics& row : rows)
    json.push_back({{"attention", row.method},
                    {"tokens", row.tokens},
                    {"rank", row.values.rank},
                    {"rank_bound", row.rank_bound},
                    {"effective_rank", row.values.effective_rank},
                    {"entropy", row.values.entropy},
                    {"sparsity", row.values.sparsity}});
  return json;
}

}  // namespace mhla::cli
