// How many times the floor each implementation takes.
#include "cli/bench/chart.hpp"

#include <fmt/format.h>

#include "cli/bench/tables.hpp"
#include "report/dot_chart.hpp"

namespace mhla::cli::bench {

std::string draw_chart(const std::vector<Row>& rows, const std::string& machine) {
  report::DotChart chart{machine, "Time over the floor", compared_impls(rows), "mhla"};
  for (const char* pass : {"fwd", "fwd+bwd"}) {
    chart.panels.push_back(
        {pass, fmt::format("{}: time over the floor (1: token tensors moved once at copy speed)", pass), {}});
    for (const Comparison& c : compare(rows)) {
      if (c.pass != pass) continue;
      auto& line = chart.panels.back().lines.emplace_back();
      line.label = fmt::format("{} {}, {}", c.shape, c.sizes, c.normalizer);
      for (const auto& [impl, ms] : c.ms) line.values[impl] = ms / c.floor_ms;
    }
  }
  return chart.svg();
}

}  // namespace mhla::cli::bench
