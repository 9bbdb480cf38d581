// Tables and digits.
#include "report/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/printable.hpp"

namespace mhla::report {
namespace {

// Letters of a UTF-8 text, for alignment.
std::size_t letters(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

// A cell is one line, whatever names it shows.
std::vector<std::vector<std::string>> printable_cells(std::vector<std::vector<std::string>> rows) {
  for (auto& row : rows)
    for (std::string& cell : row) cell = io::printable(cell);
  return rows;
}

}  // namespace

std::string table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& cells) {
  const std::vector<std::vector<std::string>> rows = printable_cells(cells);
  std::vector<std::size_t> widths;
  widths.reserve(header.size());
  for (const std::string& cell : header) widths.push_back(letters(cell));
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size() && c < widths.size(); ++c) widths[c] = std::max(widths[c], letters(row[c]));
  const auto is_number = [](const std::string& cell) {
    return cell.empty() || cell == "-" || cell.find_first_of("0123456789") == 0 || (cell[0] == '-' && cell.size() > 1);
  };
  std::vector<bool> numeric(header.size(), true);
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size() && c < widths.size(); ++c) numeric[c] = numeric[c] && is_number(row[c]);
  std::string text;
  const auto add = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t c = 0; c < row.size() && c < widths.size(); ++c) {
      const std::string gap(widths[c] - letters(row[c]), ' ');
      line += c == 0 ? "" : "  ";
      line += numeric[c] ? gap + row[c] : row[c] + gap;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add(header);
  std::size_t total = 0;
  for (const std::size_t width : widths) total += width + 2;
  text += std::string(total - 2, '-') + '\n';
  for (const auto& row : rows) add(row);
  return text;
}

std::string three_digits(double value) {
  if (!std::isfinite(value)) return "-";
  if (std::abs(value) >= 100.0) return grouped(value);
  if (std::abs(value) < 1e-4 && value != 0.0) return fmt::format("{:.2e}", value);
  return fmt::format("{:#.3g}", value);
}

std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (std::size_t place = digits.size(); place > 3 + (value < 0.0 ? 1U : 0U);) digits.insert(place -= 3, ",");
  return digits;
}

}  // namespace mhla::report
