// `mhla selftest`: are the results right on this machine?
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/commands.hpp"
#include "cli/selftest/checks.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/output.hpp"
#include "cli/support/progress.hpp"

namespace mhla::cli {
namespace {

struct SelftestOptions {
  int threads = 0;
  Output output;
};

int run_selftest(const SelftestOptions& options) {
  use_threads(options.threads);
  Progress progress("selftest", 1.0);
  const std::vector<CheckRow> rows = run_checks([&](double share) { progress.advance(share); });
  progress.finish();
  io::Json json = io::Json::array();
  std::vector<std::vector<std::string>> lines;
  for (const CheckRow& row : rows) {
    lines.push_back(check_cells(row));
    json.push_back({{"check", row.what},
                    {"dtype", row.dtype},
                    {"calls", row.calls},
                    {"forward_error", row.forward_error},
                    {"gradient_error", row.gradient_error ? io::Json(*row.gradient_error) : io::Json()},
                    {"tolerance", row.tolerance},
                    {"ok", row.good()}});
  }
  const auto failed = std::ranges::count_if(rows, [](const CheckRow& row) { return !row.good(); });
  options.output.text() << "Relative RMS error against the double reference, " << machine_line() << "\n\n"
                        << table(check_header(), lines)
                        << (failed == 0 ? "\nall good\n"
                                        : fmt::format("\n{} of {} checks FAILED\n", failed, rows.size()));
  options.output.json({{"ok", failed == 0}, {"machine", machine_json()}, {"checks", json}});
  return failed == 0 ? 0 : 1;
}

}  // namespace

void add_selftest(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<SelftestOptions>();
  auto* command =
      program.add_subcommand("selftest", "Check the fast kernels against the double reference on this machine");
  add_threads_option(*command, options->threads);
  options->output.add_option(*command);
  command->callback([options, &outcome] { outcome.exit_code = run_selftest(*options); });
}

}  // namespace mhla::cli
