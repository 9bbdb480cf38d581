// `mhla bench`: what to measure is a command of its own.
#include "cli/bench/decode.hpp"
#include "cli/bench/model.hpp"
#include "cli/bench/op.hpp"

namespace mhla::cli {

void add_bench(CLI::App& program, Outcome& outcome) {
  CLI::App& group = add_group(program, "bench", "Measure speed", "what to measure");
  bench::add_op(group, outcome);
  bench::add_model(group, outcome);
  bench::add_decode(group, outcome);
}

}  // namespace mhla::cli
