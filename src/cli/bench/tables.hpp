// What a benchmark found, for people: every row, then one table per pass with the implementations side by side.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/bench/run.hpp"

namespace mhla::cli::bench {

std::string all_rows_table(const std::vector<Row>& rows);

// One shape under one normaliser, forward or with backward: what each implementation took. Softmax knows no normaliser
// and stands beside all of them.
struct Comparison {
  std::string shape, sizes, dtype, pass, normalizer;
  double floor_ms = 0.0;
  std::map<std::string, double> ms;  // by implementation

  double best_peer_ms() const;  // infinite without peers
};
std::vector<Comparison> compare(const std::vector<Row>& rows);

// Implementations present, peers in the order they were run, the operator last.
std::vector<std::string> compared_impls(const std::vector<Row>& rows);

std::string comparison_tables(const std::vector<Row>& rows);

// Exponents of time over N of a sweep, one per "pass implementation".
std::map<std::string, double> sweep_exponents(const std::vector<Row>& rows);

}  // namespace mhla::cli::bench
