// Sentences in random order, as many as there is room for.
#include "tasks/language/needle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "data/random_stream.hpp"
#include "mhla/types.hpp"

namespace mhla::tasks {
namespace {

constexpr std::array kCities = {"Paris",  "London", "Rome",   "Vienna", "Berlin", "Madrid", "Lisbon", "Dublin",
                                "Athens", "Moscow", "Prague", "Naples", "Geneva", "Venice", "Oxford", "Boston"};
constexpr std::array kFiller = {
    "The grass is green and the sky is blue.",
    "The sun was low, and the wind had gone down with it.",
    "He walked along the river until he came to the bridge.",
    "She closed the book and looked out of the window.",
    "There was a fire in the room, and two chairs before it.",
    "The road went up the hill and down again on the other side.",
    "Nobody spoke for some time.",
    "In the morning there was snow on the roofs of the houses.",
    "They had bread and cheese, and a little wine.",
    "The old dog lay by the door and did not move.",
};

}  // namespace

Needle make_needle(const text::Tokenizer& tokenizer, std::int64_t length, double depth, std::uint64_t seed,
                   std::uint64_t number) {
  data::RandomStream random{seed, number};
  const std::string city = kCities[static_cast<std::size_t>(random.below(std::ssize(kCities)))];
  Needle needle;
  needle.right = static_cast<std::size_t>(random.below(std::ssize(kNeedleWords)));
  const std::string fact = fmt::format("The secret word of {} is", city);
  const std::string said = fmt::format("{} {}.", fact, kNeedleWords[needle.right]);
  std::int64_t left = length - std::ssize(tokenizer.encode(fmt::format(" {} {}", said, fact))) - 2;
  if (left < 0)
    throw Error(fmt::format("length is {}; a fact and its question alone need {} tokens", length, length - left));
  std::vector<std::string> sentences;
  for (;;) {
    std::string sentence = kFiller[static_cast<std::size_t>(random.below(std::ssize(kFiller)))];
    left -= std::ssize(tokenizer.encode(" " + sentence));
    if (left < 0) break;
    sentences.push_back(std::move(sentence));
  }
  const auto place = static_cast<std::ptrdiff_t>(std::lround(depth * static_cast<double>(sentences.size())));
  sentences.insert(sentences.begin() + place, said);
  needle.context = fmt::format("{} {}", fmt::join(sentences, " "), fact);
  return needle;
}

}  // namespace mhla::tasks
