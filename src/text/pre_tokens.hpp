// GPT-2's pre-tokenisation: the words that byte-level BPE encodes one by one, as the pattern
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// finds them. Together they are the whole text.
#pragma once

#include <cstddef>
#include <string_view>

namespace mhla::text {

// Bytes of the word at the beginning of `text`, which is not empty.
std::size_t first_word(std::string_view text);

// How many of the first bytes, at least `at_least`, have the same words with and without the rest behind them: up to a
// place between something and white space. All where there is no such place.
std::size_t whole_words(std::string_view text, std::size_t at_least);

}  // namespace mhla::text
