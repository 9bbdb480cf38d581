// `mhla bench`: what to measure is a command of its own.
#include "cli/bench/model.hpp"
#include "cli/bench/op.hpp"

namespace mhla::cli {

void add_bench(CLI::App& program, Outcome& outcome) {
  CLI::App& bench = add_group(program, "bench", "Measure speed", "what to measure");
  add_bench_op(bench, outcome);
  add_bench_model(bench, outcome);
}

}  // namespace mhla::cli
