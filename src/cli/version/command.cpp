// `mhla version`: what was built, with what.
#include <fmt/format.h>
#include <torch/version.h>

#include <memory>

#include "cli/commands.hpp"
#include "cli/support/output.hpp"
#include "mhla/attention.hpp"
#include "mhla/version.hpp"

namespace mhla::cli {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("g++ {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace

void add_version(CLI::App& program, Outcome&) {
  auto* command = program.add_subcommand("version", "Show version, compiler, torch and instruction set");
  auto output = std::make_shared<Output>();
  output->add_option(*command);
  command->callback([output] {
    const io::Json facts = {{"mhla", std::string(version())},
                            {"compiler", compiler()},
                            {"torch", TORCH_VERSION},
                            {"isa", std::string(cpu_isa())}};
    for (const auto& item : facts.items())
      output->text() << fmt::format("{:<9} {}\n", item.key(), item.value().get<std::string>());
    output->json(facts);
  });
}

}  // namespace mhla::cli
