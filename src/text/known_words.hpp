// Texts repeat their words: each is encoded once, then copied from where it stands in the result.
#pragma once

#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.hpp"

namespace mhla::text {

class KnownWords {
 public:
  explicit KnownWords(std::vector<Token>& tokens) : tokens_(tokens) {}

  // `encode(word)` gives a range of tokens. The word's bytes must outlive this object.
  template <typename Encode>
  void append(std::string_view word, Encode&& encode) {
    const auto [found, is_new] = places_.try_emplace(word, Place{tokens_.size(), 0});
    Place& place = found->second;
    if (is_new) {
      const auto& encoded = encode(word);
      tokens_.insert(tokens_.end(), encoded.begin(), encoded.end());
      place.count = tokens_.size() - place.first;
    } else {
      for (std::size_t i = 0; i < place.count; ++i) tokens_.push_back(tokens_[place.first + i]);
    }
  }

 private:
  struct Place {
    std::size_t first, count;
  };

  std::vector<Token>& tokens_;
  std::unordered_map<std::string_view, Place> places_;
};

}  // namespace mhla::text
