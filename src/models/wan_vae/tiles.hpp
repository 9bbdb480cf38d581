// Large frames in tiles that see as far beyond their border as their result depends on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace mhla::models::wan_vae {

struct Span {
  std::int64_t begin, end;            // what the tile is for
  std::int64_t seen_begin, seen_end;  // what it looks at
};

// A line of `size` in tiles of `side`, each looking `reach` further.
inline std::vector<Span> spans_of(std::int64_t size, std::int64_t side, std::int64_t reach) {
  std::vector<Span> spans;
  for (std::int64_t begin = 0; begin < size; begin += side) {
    const std::int64_t end = std::min(begin + side, size);
    spans.push_back({begin, end, std::max<std::int64_t>(begin - reach, 0), std::min(end + reach, size)});
  }
  return spans;
}

struct Tile {
  Span rows, columns;
};

inline std::vector<Tile> tiles_of(std::int64_t height, std::int64_t width, std::int64_t side, std::int64_t reach) {
  std::vector<Tile> tiles;
  for (const Span& rows : spans_of(height, side, reach))
    for (const Span& columns : spans_of(width, side, reach)) tiles.push_back({rows, columns});
  return tiles;
}

}  // namespace mhla::models::wan_vae
