// The page at "/", to try the model in a browser.
#pragma once

#include <string_view>

namespace mhla::cli {

extern const std::string_view kServePage;

}  // namespace mhla::cli
