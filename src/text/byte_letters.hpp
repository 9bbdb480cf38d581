// How GPT-2's files spell bytes: each as one printable character, those that print as themselves, the others as U+0100
// and following. A space is "\u0120", shown as a G with a dot.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mhla::text {

// All bytes in the order of their tokens in GPT-2's vocabulary: first those that print.
const std::array<std::uint8_t, 256>& bytes_in_order();

std::string spelled(std::string_view bytes);
std::optional<std::string> bytes_of_spelling(std::string_view spelling);  // nothing where a character is no byte's

}  // namespace mhla::text
