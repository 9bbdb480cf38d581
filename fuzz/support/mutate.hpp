// Changes of an input: what damaged and hostile files have.
#pragma once

#include "support/target.hpp"

namespace mhla::fuzz {

// Numbers that depend on nothing but their seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t x = (state_ += 0x9e3779b97f4a7c15U);
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(next() % count); }

 private:
  std::uint64_t state_;
};

// One of `seeds` with one to five changes; without seeds, random bytes.
Bytes mutated(const Inputs& seeds, Random& random);

}  // namespace mhla::fuzz
