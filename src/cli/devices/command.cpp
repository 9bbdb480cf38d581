// `mhla devices`: what the operator can run on here.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/output.hpp"
#include "mhla/attention.hpp"

namespace mhla::cli {

void add_devices(CLI::App& program, Outcome&) {
  auto* command = program.add_subcommand("devices", "List the devices the operator can run on");
  auto output = std::make_shared<Output>();
  output->add_option(*command);
  command->callback([output] {
    std::vector<std::vector<std::string>> rows{{"cpu", device_description(Device::cpu, 0),
                                                std::to_string(logical_cores()), std::to_string(threads_in_use()),
                                                std::string(cpu_isa())}};
    io::Json cpu = machine_json();
    cpu["device"] = "cpu";
    io::Json devices = io::Json::array({cpu});
    for (int index = 0; index < device_count(Device::cuda); ++index) {
      const std::string device = fmt::format("cuda:{}", index), description = device_description(Device::cuda, index);
      rows.push_back({device, description, "-", "-", "-"});
      devices.push_back({{"device", device}, {"name", description}});
    }
    if (rows.size() == 1) rows.push_back({"cuda", "none: no GPU, no driver, or built without CUDA", "-", "-", "-"});
    output->text() << table({"device", "name", "cores", "threads", "instructions"}, rows);
    output->json({{"devices", devices}});
  });
}

}  // namespace mhla::cli
