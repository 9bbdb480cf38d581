// The version of the library that is loaded.
#pragma once

#include <string_view>

namespace mhla {

std::string_view version();  // "major.minor.patch"

}  // namespace mhla
