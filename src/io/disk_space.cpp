// Room on the disk.
#include "io/disk_space.hpp"

#include <system_error>

namespace mhla::io {
namespace fs = std::filesystem;

std::optional<std::uintmax_t> free_bytes(const fs::path& path) {
  std::error_code failure;
  if (fs::exists(path, failure) && !fs::is_regular_file(path, failure)) return std::nullopt;
  fs::path place = fs::absolute(path, failure).parent_path();
  while (place.has_relative_path() && !fs::exists(place, failure)) place = place.parent_path();
  const fs::space_info space = fs::space(place, failure);
  if (failure) return std::nullopt;
  return space.available;
}

}  // namespace mhla::io
