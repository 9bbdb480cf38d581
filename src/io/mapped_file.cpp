// mmap(2).
#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "io/file.hpp"
#include "mhla/types.hpp"

namespace mhla::io {

MappedFile::MappedFile(const std::filesystem::path& path) {
  const std::size_t size = size_of_file(path);
  if (size == 0) return;
  const auto fail = [&] {
    const int reason = errno;
    throw Error(fmt::format("{}: cannot be read: {}", path.string(), std::generic_category().message(reason)));
  };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail();
  void* const start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  ::close(descriptor);
  if (start == MAP_FAILED) fail();
  bytes = {static_cast<const std::byte*>(start), size};
  owner = std::shared_ptr<const void>(start, [size](void* mapped) { ::munmap(mapped, size); });
}

void let_go_of_mapped(std::span<const std::byte> bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t before = (page - begin % page) % page;  // bytes in front of the first whole page
  if (before >= bytes.size()) return;
  auto* const first = const_cast<std::byte*>(bytes.data()) + before;
  ::madvise(first, (bytes.size() - before) / page * page, MADV_DONTNEED);
}

}  // namespace mhla::io
