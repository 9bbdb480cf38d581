// The page the demonstration writes: what was found, then how it was measured.
#pragma once

#include <string>
#include <vector>

#include "cli/analyze/run.hpp"
#include "cli/bench/run.hpp"
#include "cli/demo/drawing.hpp"
#include "cli/demo/streaming.hpp"
#include "cli/selftest/checks.hpp"

namespace mhla::cli {

struct DemoFindings {
  std::string machine;
  DrawnPictures drawn;
  std::vector<CheckRow> checks;
  Partition partition = Partition::line(1, 1);
  std::int64_t dim = 0;
  Analysis analysis;
  std::vector<bench::Row> sweep;  // forward, shapes "n=<N>"
  StreamRun stream;
};

// Smallest N of the sweep from which on `impl` is slower than the operator; 0: at the largest N it still wins.
std::int64_t overtaken_from(const std::vector<bench::Row>& sweep, const std::string& impl);
double sweep_exponent(const std::vector<bench::Row>& sweep, const std::string& impl);
std::string overtaken_sentence(const std::vector<bench::Row>& sweep, const std::string& impl,
                               const std::string& called);

std::string demo_page(const DemoFindings& findings);

}  // namespace mhla::cli
