// Tables that tie the values of an enumeration to the names users type.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "mhla/types.hpp"

namespace mhla {

template <typename Enum>
struct NameEntry {
  Enum value;
  std::string_view name;
  std::string_view alias = {};  // a second spelling that parse() accepts
};

template <typename Enum>
std::string_view find_name(std::span<const NameEntry<Enum>> table, Enum value) {
  for (const NameEntry<Enum>& entry : table)
    if (entry.value == value) return entry.name;
  throw Error("enumeration value " + std::to_string(static_cast<int>(value)) + " has no name");
}

// Underscores and dashes are the same to a reader and to us.
inline bool same_name(std::string_view text, std::string_view name) {
  return std::ranges::equal(text, name, {}, [](char c) { return c == '_' ? '-' : c; });
}

template <typename Enum>
Enum parse_name(std::span<const NameEntry<Enum>> table, std::string_view subject, std::string_view text) {
  for (const NameEntry<Enum>& entry : table)
    if (same_name(text, entry.name) || (!entry.alias.empty() && same_name(text, entry.alias))) return entry.value;
  std::string valid;
  for (const NameEntry<Enum>& entry : table) {
    valid += valid.empty() ? "" : ", ";
    valid += entry.name;
  }
  throw Error(std::string(subject) + " is '" + std::string(text) + "'; it may be " + valid);
}

}  // namespace mhla
