// Files that must survive a crash: written beside their place, flushed to the disk, then renamed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace mhla::train {

// On failure (a full disk, a missing right) the error says why, and what was at `path` before is still there.
void write_durably(const std::filesystem::path& path, std::span<const std::byte> bytes);

// Removes what killed processes left behind while writing into this folder.
void remove_unfinished(const std::filesystem::path& folder);

}  // namespace mhla::train
