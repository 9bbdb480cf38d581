// What is in a PNG file: its size, and its texts, such as the parameters of a picture of `mhla sample`.
#pragma once

#include <ostream>
#include <string>

#include "io/json.hpp"

namespace mhla::cli {

bool holds_png(const std::string& file);

// The whole file is decoded. Returns its JSON.
io::Json inspect_png(const std::string& file, std::ostream& text);

}  // namespace mhla::cli
