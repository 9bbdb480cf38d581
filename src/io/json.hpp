// JSON in and out, with errors that say where the text came from.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace mhla::io {

using Json = nlohmann::ordered_json;

// Strict: one value, no duplicate keys, nesting of at most `max_depth`. `source` begins every error message.
Json parse_json(std::string_view text, std::string_view source, int max_depth = 64);

// Writes to a file (atomically), or to the standard output where `target` is "-". Names that are not UTF-8 are escaped.
void write_json(const std::string& target, const Json& value);

}  // namespace mhla::io
