// Names of files, classes and tensors as they may be shown: they come from others and may hold any bytes.
#pragma once

#include <string>
#include <string_view>

namespace mhla::io {

bool is_utf8(std::string_view text);

// UTF-8 without control characters: these, and bytes that are not UTF-8, become \xNN. `kept` are control characters
// that stay.
std::string printable(std::string_view text, std::string_view kept = "");

}  // namespace mhla::io
