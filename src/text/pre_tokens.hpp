// GPT-2's pre-tokenisation: the words that byte-level BPE encodes one by one, as the pattern
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// finds them. Together they are the whole text.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace mhla::text {

// Bytes of the word at the beginning of `text`, which is not empty.
std::size_t first_word(std::string_view text);

// The text in parts of `at_least` bytes or more, cut between something and white space: their words are those of the
// text.
std::vector<std::string_view> parts_of_words(std::string_view text, std::size_t at_least);

}  // namespace mhla::text
