// `mhla devices`: what the operator can run on here.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.hpp"
#include "cli/machine.hpp"
#include "cli/output.hpp"
#include "mhla/attention.hpp"

namespace mhla::cli {

void add_devices(CLI::App& program, Outcome&) {
  auto* command = program.add_subcommand("devices", "List the devices the operator can run on");
  auto output = std::make_shared<Output>();
  output->add_option(*command);
  command->callback([output] {
    output->text() << table(
        {"device", "name", "cores", "threads", "instructions"},
        {{"cpu", cpu_name(), std::to_string(logical_cores()), std::to_string(threads_in_use()), std::string(cpu_isa())},
         {"cuda", "not built", "-", "-", "-"}});
    io::Json cpu = machine_json();
    cpu["device"] = "cpu";
    output->json({{"devices", {cpu}}, {"not_built", {"cuda"}}});
  });
}

}  // namespace mhla::cli
