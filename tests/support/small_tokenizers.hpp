// Small tokenizers as files.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/byte_letters.hpp"

namespace mhla::testing {

// A message of protocol buffers, field by field.
class Message {
 public:
  Message& number(unsigned field, std::uint64_t value) {
    varint(field << 3U);
    varint(value);
    return *this;
  }
  Message& real(unsigned field, float value) {
    varint(field << 3U | 5U);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (unsigned shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift & 0xFFU);
    return *this;
  }
  Message& text(unsigned field, std::string_view value) {
    varint(field << 3U | 2U);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) bytes_ += static_cast<char>(0x80U | (value & 0x7FU));
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

struct SentencePieceKind {
  bool unigram = false;             // else BPE
  bool bytes = true;                // pieces for all bytes
  bool space_first = true;          // a space in front of every text
  bool joined = false;              // with a piece over two words
  std::string one_byte = "<0x0A>";  // how that one is spelled
  std::string map = "";             // of its normaliser
};

// A map that makes "te" of "t".
inline std::vector<std::uint32_t> small_trie() {
  std::vector<std::uint32_t> units(512);
  for (unsigned unit = 0; unit < 512; ++unit) units[unit] = unit & 0xFFU;  // leads to itself
  units[0] = 0x100U << 10U;
  units[0x100 ^ 't'] = 't' | 0x100U | ('t' ^ 0x1U) << 10U;  // its value is unit 0x101
  units[0x101] = 0x80000000U | 1U;
  return units;
}

inline std::string normalization_map(const std::vector<std::uint32_t>& units, const std::string& texts) {
  std::string map;
  const auto append = [&](std::uint32_t value) {
    for (unsigned shift = 0; shift < 32; shift += 8) map += static_cast<char>(value >> shift & 0xFFU);
  };
  append(static_cast<std::uint32_t>(4 * units.size()));
  for (const std::uint32_t unit : units) append(unit);
  return map + texts;
}

inline std::string small_map() { return normalization_map(small_trie(), std::string("\0te\0", 4)); }

// <unk>, <s>, </s>, bytes, and pieces that make "the theme" from letters.
inline std::string small_sentence_piece(const SentencePieceKind& kind = {}) {
  enum Type : std::uint8_t { normal = 1, unknown = 2, control = 3, byte = 6 };
  const std::string space = "\xE2\x96\x81";
  Message model;
  float score = 0.0F;
  const auto add = [&](const std::string& piece, Type type) {
    Message message;
    message.text(1, piece).real(2, type == normal ? score : 0.0F).number(3, type);
    model.text(1, message.bytes());
    if (type == normal) score -= kind.unigram ? 0.7F : 1.0F;
  };
  add("<unk>", unknown);
  add("<s>", control);
  add("</s>", control);
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (unsigned value = 0; value < 256 && kind.bytes; ++value)
    add(value == 10 ? kind.one_byte : std::string("<0x") + kDigits[value / 16] + kDigits[value % 16] + ">", byte);
  std::vector<std::string> pieces{"th", space + "th", "em", space + "the", "eme", space, "t", "h", "e", "m"};
  if (kind.joined) pieces.insert(pieces.begin() + 4, space + "the" + space + "th");
  for (const std::string& piece : pieces) add(piece, normal);
  Message trainer, normalizer;
  trainer.number(3, kind.unigram ? 1 : 2).number(4, 3).number(35, kind.bytes ? 1 : 0);
  normalizer.text(1, "identity").text(2, kind.map).number(3, kind.space_first ? 1 : 0).number(4, 0).number(5, 1);
  model.text(2, trainer.bytes()).text(3, normalizer.bytes());
  return model.bytes();
}

// The members of a tokenizer.json: all bytes, "th", "the", "\u0120th" and <|endoftext|>.
inline std::string small_vocabulary() {
  std::string json = "{";
  int id = 0;
  for (const std::uint8_t byte : text::bytes_in_order()) {
    const std::string letter = text::spelled(std::string(1, static_cast<char>(byte)));
    json += (letter == "\"" || letter == "\\" ? "\"\\" : "\"") + letter + "\": " + std::to_string(id++) + ", ";
  }
  return json + R"("th": 256, "the": 257, "Ġth": 258, "<|endoftext|>": 259})";
}

inline std::string small_tokenizer_json() {
  return R"({"version": "1.0", "added_tokens": [{"id": 259, "content": "<|endoftext|>", "special": true}],
"normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
"decoder": {"type": "ByteLevel"},
"model": {"type": "BPE", "vocab": )" +
         small_vocabulary() + R"(, "merges": ["t h", "th e", ["Ġ", "th"]]}})";
}

inline std::string small_merges() { return "#version: 0.2\nt h\nth e\nĠ th\n"; }

}  // namespace mhla::testing
