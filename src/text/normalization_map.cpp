// A model is a message of protocol buffers; fields 3 and 5 are its normalisers, whose field 2 is a map: the size of the
// trie in bytes (uint32), the trie, and the texts that its values point into, each with a zero at its end.
#include "text/normalization_map.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "mhla/types.hpp"

namespace mhla::text {
namespace {

using Bytes = std::span<const std::byte>;

static_assert(std::endian::native == std::endian::little, "units of the trie are read as they lie in memory");

std::optional<std::uint64_t> take_varint(Bytes& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = std::to_integer<std::uint64_t>(bytes[0]);
    bytes = bytes.subspan(1);
    value |= (byte & 0x7FU) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// The contents of the fields of this number, as far as the message can be read; the library refuses the rest.
std::vector<Bytes> fields(Bytes message, std::uint64_t number) {
  std::vector<Bytes> found;
  while (const auto tag = take_varint(message)) {
    std::optional<std::uint64_t> size;
    switch (*tag & 7U) {
      case 0:
        size = take_varint(message) ? 0 : size;
        break;
      case 1:
        size = 8;
        break;
      case 2:
        size = take_varint(message);
        break;
      case 5:
        size = 4;
        break;
      default:
        break;
    }
    if (!size || *size > message.size()) break;
    if ((*tag & 7U) == 2 && *tag >> 3U == number) found.push_back(message.first(*size));
    message = message.subspan(*size);
  }
  return found;
}

bool stays_inside(Bytes map) {
  std::uint32_t trie_bytes = 0;
  if (map.size() < sizeof(trie_bytes)) return false;
  std::memcpy(&trie_bytes, map.data(), sizeof(trie_bytes));
  map = map.subspan(sizeof(trie_bytes));
  if (trie_bytes == 0 || trie_bytes > map.size() || trie_bytes % sizeof(std::uint32_t) != 0) return false;
  std::vector<std::uint32_t> units(trie_bytes / sizeof(std::uint32_t));
  std::memcpy(units.data(), map.data(), trie_bytes);
  const Bytes texts = map.subspan(trie_bytes);
  if (!texts.empty() && texts.back() != std::byte{0}) return false;
  for (std::size_t at = 0; at < units.size(); ++at) {
    const std::uint32_t unit = units[at];
    if (at > 0 && unit >> 31U != 0) continue;  // a value, which no byte leads to
    const std::size_t base = at ^ (static_cast<std::size_t>(unit >> 10U) << ((unit & 0x200U) >> 6U));
    if ((base | 0xFFU) >= units.size()) return false;  // any byte may come next
    const bool has_value = (unit & 0x100U) != 0;
    if (has_value && (units[base] & 0x7FFFFFFFU) >= texts.size()) return false;
  }
  return true;
}

}  // namespace

void check_normalization_maps(std::span<const std::byte> model, const std::string& name) {
  constexpr std::uint64_t kNormalizer = 3, kDenormalizer = 5, kMap = 2;
  for (const std::uint64_t kind : {kNormalizer, kDenormalizer})
    for (const Bytes normalizer : fields(model, kind))
      for (const Bytes map : fields(normalizer, kMap))
        if (!map.empty() && !stays_inside(map))
          throw Error(fmt::format("{}: no SentencePiece model: its normalisation map is damaged", name));
}

}  // namespace mhla::text
