// Quoting of CSV cells.
#include "io/csv.hpp"

namespace mhla::io {
namespace {

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return quoted + '"';
}

void add_csv_line(std::string& text, const std::vector<std::string>& cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) text += (i == 0 ? "" : ",") + csv_cell(cells[i]);
  text += '\n';
}

}  // namespace

std::string encode_csv(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  add_csv_line(text, header);
  for (const auto& row : rows) add_csv_line(text, row);
  return text;
}

}  // namespace mhla::io
