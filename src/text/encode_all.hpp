// Many or large texts at once, on the library's threads.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace mhla::text {

// The tokens of each text. The same as encode() gives, whatever the number of threads (mhla/parallel.hpp).
std::vector<std::vector<Token>> encode_all(const Tokenizer& tokenizer, std::span<const std::string_view> texts);

}  // namespace mhla::text
