// JSON in and out, with errors that say where the text came from.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace mhla::io {

using Json = nlohmann::ordered_json;

// Strict: one value, no duplicate keys, nesting of at most `max_depth`. `source` begins every error message.
Json parse_json(std::string_view text, std::string_view source, int max_depth = 64);

// Stores a value of the target's own type; false where it is of another, or does not fit. The library's conversions
// make 1 of 1.5 and of true, and a negative number of 2^63.
bool read_exactly(const Json& value, bool& target);
bool read_exactly(const Json& value, std::int64_t& target);
bool read_exactly(const Json& value, double& target);
bool read_exactly(const Json& value, float& target);
bool read_exactly(const Json& value, std::string& target);

template <typename Value>
bool read_exactly(const Json& value, std::vector<Value>& target) {
  target.resize(value.is_array() ? value.size() : 0);
  for (std::size_t i = 0; i < target.size(); ++i)
    if (!read_exactly(value[i], target[i])) return false;
  return value.is_array();
}

inline bool read_exactly(const Json& value, std::vector<bool>& target) {
  target.clear();
  for (const Json& element : value) {
    if (!element.is_boolean()) return false;
    target.push_back(element.get<bool>());
  }
  return value.is_array();
}

template <typename Value, std::size_t count>
bool read_exactly(const Json& value, std::array<Value, count>& target) {
  std::vector<Value> values;
  if (!read_exactly(value, values) || values.size() != count) return false;
  std::ranges::copy(values, target.begin());
  return true;
}

// Writes to a file (atomically), or to the standard output where `target` is "-". Names that are not UTF-8 are escaped.
void write_json(const std::string& target, const Json& value);

}  // namespace mhla::io
