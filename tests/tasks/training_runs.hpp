// Images to train on, and what runs leave behind.
#pragma once

#include <filesystem>
#include <random>
#include <string>

#include "io/file.hpp"
#include "io/json.hpp"
#include "io/png.hpp"
#include "mhla/types.hpp"
#include "support/no_damage.hpp"
#include "train/checkpoint.hpp"

namespace mhla::testing {

inline std::string quoted(const std::filesystem::path& path) { return "'" + path.string() + "'"; }

// Three classes told apart by their colour.
inline void write_images(const std::filesystem::path& folder) {
  constexpr int kSide = 16;
  std::mt19937 random(1);
  for (const auto& [split, count] : {std::pair{"train", 14}, std::pair{"val", 6}, std::pair{"test", 6}})
    for (int label = 0; label < 3; ++label)
      for (int i = 0; i < count; ++i) {
        std::vector<std::uint8_t> rgb(kSide * kSide * 3);
        for (std::size_t p = 0; p < rgb.size(); ++p)
          rgb[p] = static_cast<std::uint8_t>(random() % 128 + (static_cast<int>(p % 3) == label ? 127 : 0));
        io::write_file(folder / split / ("class" + std::to_string(label)) / (std::to_string(i) + ".png"),
                       io::encode_png(rgb, kSide, kSide));
      }
}

inline io::Json read_json(const std::filesystem::path& path) {
  const auto bytes = io::read_file(path);
  return io::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

inline train::Checkpoint newest(const std::filesystem::path& out) {
  auto found = train::CheckpointFolder(out / "checkpoints").newest(no_damage);
  if (!found) throw Error(out.string() + ": no checkpoint");
  return *found;
}

}  // namespace mhla::testing
