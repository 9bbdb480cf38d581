// Options of models as JSON, for any struct with a function for_each_option(options, visit) that calls
// visit(name, member) for every option.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "io/json.hpp"
#include "mhla/types.hpp"

namespace mhla::models {

template <typename Options>
void write_options(io::Json& json, const Options& options) {
  json = io::Json::object();
  for_each_option(options, [&](const char* name, const auto& value) { json[name] = value; });
}

enum class Unknown { refused, ignored };  // members of other names

// Members that are missing keep their defaults; one that is unknown or of the wrong type is an Error that names it.
template <typename Options>
void read_options(const io::Json& json, Options& options, std::string_view what, Unknown unknown = Unknown::refused) {
  if (!json.is_object()) throw Error(fmt::format("{} options are {}, not an object", what, json.type_name()));
  options = {};
  io::Json known;
  write_options(known, options);
  for (const auto& item : json.items())
    if (unknown == Unknown::refused && !known.contains(item.key()))
      throw Error(fmt::format("{} option \"{}\" is unknown", what, item.key()));
  for_each_option(options, [&](const char* name, auto& value) {
    const auto found = json.find(name);
    if (found != json.end() && !io::read_exactly(*found, value))
      throw Error(fmt::format("{} option \"{}\" is {}, which is of the wrong type", what, name, found->dump()));
  });
}

}  // namespace mhla::models
