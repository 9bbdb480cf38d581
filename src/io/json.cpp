// Strict JSON parsing.
#include "io/json.hpp"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "mhla/types.hpp"

namespace mhla::io {

Json parse_json(std::string_view text, std::string_view source, int max_depth) {
  std::vector<std::set<std::string>> open_objects;
  const auto check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > max_depth) throw Error(fmt::format("{}: nested deeper than {} levels", source, max_depth));
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second)
        throw Error(fmt::format("{}: key \"{}\" appears twice", source, key));
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check);
  } catch (const Json::exception& error) {
    throw Error(fmt::format("{}: not valid JSON: {}", source, error.what()));
  }
}

}  // namespace mhla::io
