// Numbers and tables as plain text.
#pragma once

#include <string>
#include <vector>

namespace mhla::report {

// Columns as wide as their widest cell; numbers are right-aligned, words left-aligned, control characters escaped.
std::string table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& cells);

// At least three significant digits: 0.0123 -> "0.0123", 12.34 -> "12.3", 1234.5 -> "1,234".
std::string three_digits(double value);

// 65536 -> "65,536"
std::string grouped(double value);

}  // namespace mhla::report
