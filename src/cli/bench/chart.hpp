// Time over the floor, per shape and implementation, as an SVG picture.
#pragma once

#include <string>
#include <vector>

#include "cli/bench/run.hpp"

namespace mhla::cli::bench {

// One panel per pass, one line per shape and normaliser, one dot per implementation on a logarithmic axis.
std::string draw_chart(const std::vector<Row>& rows, const std::string& machine);

}  // namespace mhla::cli::bench
