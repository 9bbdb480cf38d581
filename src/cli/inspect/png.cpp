// What is in a PNG file.
#include "cli/inspect/png.hpp"

#include <fmt/format.h>

#include "io/apng.hpp"
#include "io/file.hpp"
#include "io/png.hpp"
#include "io/png_chunks.hpp"
#include "io/printable.hpp"
#include "mhla/types.hpp"

namespace mhla::cli {
namespace {

// Members of a JSON object line by line, any other text as it is.
std::string shown(const std::string& keyword, const std::string& value) {
  io::Json json;
  try {
    json = io::parse_json(value, keyword);
  } catch (const Error&) {
    json = nullptr;
  }
  if (!json.is_object()) return fmt::format("{}: {}\n", io::printable(keyword), io::printable(value));
  std::string lines = fmt::format("{}:\n", io::printable(keyword));
  for (const auto& item : json.items()) {
    const std::string text = item.value().is_string() ? item.value().get<std::string>() : item.value().dump();
    lines += fmt::format("  {}: {}\n", io::printable(item.key()), io::printable(text));
  }
  return lines;
}

}  // namespace

bool holds_png(const std::string& file) { return io::is_png(io::read_beginning(file, io::kPngSignature)); }

io::Json inspect_png(const std::string& file, std::ostream& text) {
  const auto bytes = io::read_file(file, io::kMostFileBytes);
  io::PngTexts texts;
  const io::Image image = io::decode_png(bytes, file, &texts);
  const auto frames = io::frames_of_png(bytes);
  text << fmt::format("{}\n\nPNG of {} x {} pixels{}\n", file, image.width, image.height,
                      frames ? fmt::format(", an animation of {} frames", *frames) : "");
  io::Json metadata = io::Json::object();
  for (const auto& [keyword, value] : texts) {
    text << shown(keyword, value);
    metadata[keyword] = value;
  }
  io::Json json = {{"file", file}, {"width", image.width}, {"height", image.height}, {"metadata", metadata}};
  if (frames) json["frames"] = *frames;
  return json;
}

}  // namespace mhla::cli
