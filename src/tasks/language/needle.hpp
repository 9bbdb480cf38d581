// A text with a fact in it and a question about it at its end.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.hpp"

namespace mhla::tasks {

inline constexpr std::array kNeedleWords = {"amber",  "bread",  "castle", "dragon", "engine", "forest",
                                            "garden", "hammer", "island", "jacket", "kettle", "ladder",
                                            "marble", "needle", "orange", "pepper"};

struct Needle {
  std::string context;    // the text and the question
  std::size_t right = 0;  // of kNeedleWords, each of which follows with a space in front
};

// Filler sentences of about `length` tokens, and at `depth`, 0 to 1, one that says a word. Which, depends on `seed` and
// `number`.
Needle make_needle(const text::Tokenizer& tokenizer, std::int64_t length, double depth, std::uint64_t seed,
                   std::uint64_t number);

}  // namespace mhla::tasks
