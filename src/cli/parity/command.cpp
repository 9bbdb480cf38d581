// `mhla parity FILE...`: does this build give the results stored in a file?
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "cli/commands.hpp"
#include "cli/parity/kinds.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/output.hpp"
#include "cli/support/progress.hpp"

namespace mhla::cli::parity {
namespace {

struct Options {
  std::vector<std::string> files;
  Output output;
};

int run(const Options& options) {
  io::Json rows = io::Json::array();
  std::vector<std::vector<std::string>> lines;
  bool all_good = true;
  Progress progress("parity", static_cast<double>(options.files.size()));
  for (const std::string& file : options.files) {
    for (const Result& result : check_case(file)) {
      const bool good = result.relative_rms <= result.tolerance;
      all_good = all_good && good;
      lines.push_back({file, result.kind, result.output, fmt::format("{:.2e}", result.relative_rms),
                       fmt::format("{:.2e}", result.largest_error), fmt::format("{:.0e}", result.tolerance),
                       good ? "ok" : "FAILED"});
      rows.push_back({{"file", file},
                      {"kind", result.kind},
                      {"output", result.output},
                      {"relative_rms", result.relative_rms},
                      {"largest_error", result.largest_error},
                      {"tolerance", result.tolerance},
                      {"ok", good}});
    }
    progress.advance(1.0, file);
  }
  progress.finish();
  options.output.text() << table({"file", "kind", "output", "relative RMS", "largest error", "tolerance", ""}, lines);
  options.output.json({{"ok", all_good}, {"outputs", rows}});
  return all_good ? 0 : 1;
}

}  // namespace
}  // namespace mhla::cli::parity

void mhla::cli::add_parity(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<parity::Options>();
  auto* command = program.add_subcommand("parity", "Check this build against stored results of the authors' code");
  command->add_option("files", options->files, "Parity cases (.safetensors); see docs/cli.md for the format")
      ->required()
      ->check(existing_file())
      ->type_name("FILE");
  options->output.add_option(*command);
  command->footer("Kinds of cases this build knows: " + parity::known_kinds());
  command->callback([options, &outcome] { outcome.exit_code = parity::run(*options); });
}
