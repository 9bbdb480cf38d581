// `mhla inspect FILE...`: what is in a safetensors file, or in the metadata of a PNG.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <map>
#include <memory>

#include "cli/commands.hpp"
#include "cli/failure.hpp"
#include "cli/inspect/png.hpp"
#include "cli/support/output.hpp"
#include "io/printable.hpp"
#include "io/safetensors.hpp"

namespace mhla::cli {
namespace {

constexpr std::size_t kMostLetters = 100;  // of a metadata value shown

struct InspectOptions {
  std::vector<std::string> files;
  bool summary = false;
  Output output;
};

std::int64_t elements(const io::SafeTensor& tensor) {
  std::int64_t count = 1;
  for (const std::int64_t extent : tensor.shape) count *= extent;
  return count;
}

std::string shortened(const std::string& text) {
  if (text.size() <= kMostLetters) return text;
  std::size_t end = kMostLetters;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

struct Totals {
  std::int64_t elements = 0;
  std::size_t bytes = 0;
};

void inspect(const io::SafeTensors& file, const InspectOptions& options, io::Json& json) {
  std::ostream& text = options.output.text();
  std::vector<std::vector<std::string>> rows;
  std::map<std::string, Totals> by_type;
  Totals all;
  io::Json tensors = io::Json::array();
  for (const auto& [name, tensor] : file.tensors()) {
    rows.push_back({name, tensor.dtype, fmt::format("[{}]", fmt::join(tensor.shape, ", ")),
                    grouped(static_cast<double>(tensor.data.size()))});
    tensors.push_back(
        {{"name", name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"bytes", tensor.data.size()}});
    for (Totals* totals : {&all, &by_type[tensor.dtype]}) {
      totals->elements += elements(tensor);
      totals->bytes += tensor.data.size();
    }
  }
  text << file.source() << "\n\n";
  if (!options.summary && !rows.empty()) text << table({"tensor", "dtype", "shape", "bytes"}, rows) << '\n';
  for (const auto& [key, value] : file.metadata())
    text << fmt::format("{}: {}\n", io::printable(key), shortened(io::printable(value)));
  if (!file.metadata().empty()) text << '\n';
  std::string types;
  for (const auto& [dtype, totals] : by_type)
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", grouped(static_cast<double>(totals.elements)), dtype);
  text << fmt::format("{} tensors, {} elements{}, {} bytes\n", file.tensors().size(),
                      grouped(static_cast<double>(all.elements)), types.empty() ? "" : " (" + types + ")",
                      grouped(static_cast<double>(all.bytes)));
  json.push_back({{"file", file.source()},
                  {"metadata", file.metadata()},
                  {"tensors", tensors},
                  {"elements", all.elements},
                  {"bytes", all.bytes}});
}

int run_inspect(const InspectOptions& options) {
  io::Json json = io::Json::array();
  bool all_good = true;
  for (std::size_t i = 0; i < options.files.size(); ++i) {
    if (i > 0) options.output.text() << '\n';
    try {
      if (holds_png(options.files[i]))
        json.push_back(inspect_png(options.files[i], options.output.text()));
      else
        inspect(io::SafeTensors::load(options.files[i]), options, json);
    } catch (const std::exception& error) {
      all_good = false;
      const std::string why = failure_message(error);
      std::cerr << "mhla: " << why << '\n';
      json.push_back({{"file", options.files[i]}, {"error", why}});
    }
  }
  options.output.json(json);
  return all_good ? 0 : 1;
}

}  // namespace

void add_inspect(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<InspectOptions>();
  auto* command = program.add_subcommand(
      "inspect", "List tensors and metadata of .safetensors files, and the metadata of PNG files");
  command->add_option("files", options->files, ".safetensors and PNG files to look into; each is validated as a whole")
      ->required()
      ->type_name("FILE");
  command->add_flag("--summary", options->summary, "Leave out the list of tensors");
  options->output.add_option(*command);
  command->callback([options, &outcome] { outcome.exit_code = run_inspect(*options); });
}

}  // namespace mhla::cli
