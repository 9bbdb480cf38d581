// Time over the floor, per shape and implementation, as an SVG picture.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/run.hpp"

namespace mhla::cli {

// One panel per pass, one line per shape and normaliser, one dot per implementation on a logarithmic axis.
std::string bench_chart(const std::vector<BenchRow>& rows, const std::string& machine);

}  // namespace mhla::cli
