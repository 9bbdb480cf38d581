// Validation of tar headers.
#include "io/tar.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "io/gzip.hpp"
#include "mhla/types.hpp"

namespace mhla::io {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kLongestName = 1 << 16;

// A header's fields by place and length.
struct Field {
  std::size_t begin, length;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kType{156, 1}, kLinkName{157, 100}, kMagic{257, 6},
    kPrefix{345, 155};

using Block = std::span<const std::byte>;

std::string_view text_of(Block bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Up to the first NUL.
std::string_view text_field(Block header, Field field) {
  const std::string_view text = text_of(header.subspan(field.begin, field.length));
  return text.substr(0, text.find('\0'));
}

// Octal digits with spaces around them, or GNU's big-endian binary with the highest bit set.
std::optional<std::uint64_t> number_field(Block header, Field field) {
  const Block bytes = header.subspan(field.begin, field.length);
  if ((bytes[0] & std::byte{0x80}) != std::byte{0}) {
    std::uint64_t value = std::to_integer<std::uint64_t>(bytes[0] & std::byte{0x7F});
    for (const std::byte byte : bytes.subspan(1)) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | std::to_integer<std::uint64_t>(byte);
    }
    return value;
  }
  std::string_view digits = text_field(header, field);
  while (!digits.empty() && digits.front() == ' ') digits.remove_prefix(1);
  while (!digits.empty() && digits.back() == ' ') digits.remove_suffix(1);
  std::uint64_t value = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
  if (failure != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

// The sum of the header's bytes with its own field read as spaces.
std::uint64_t checksum(Block header) {
  std::uint64_t sum = kChecksum.length * ' ';
  for (std::size_t i = 0; i < kBlock; ++i)
    if (i < kChecksum.begin || i >= kChecksum.begin + kChecksum.length)
      sum += std::to_integer<std::uint64_t>(header[i]);
  return sum;
}

bool all_zero(Block bytes) {
  return std::ranges::all_of(bytes, [](std::byte value) { return value == std::byte{0}; });
}

std::string header_name(Block header) {
  std::string name(text_field(header, kName));
  // POSIX splits long names; GNU's older format uses the prefix for other things.
  if (text_of(header.subspan(kMagic.begin, kMagic.length)) == std::string_view("ustar\0", 6))
    if (const std::string_view prefix = text_field(header, kPrefix); !prefix.empty())
      name = fmt::format("{}/{}", prefix, name);
  return name;
}

// The records "LENGTH KEY=VALUE\n" of a pax header; LENGTH counts the whole record.
std::map<std::string, std::string, std::less<>> pax_records(std::string_view text, const std::string& where) {
  std::map<std::string, std::string, std::less<>> records;
  while (!text.empty()) {
    std::size_t length = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), length);
    const std::size_t digits = end - text.data();
    if (failure != std::errc{} || length > text.size() || length < digits + 3 || text[digits] != ' ' ||
        text[length - 1] != '\n')
      throw Error(fmt::format("{}: malformed pax header", where));
    const std::string_view record = text.substr(digits + 1, length - digits - 2);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) throw Error(fmt::format("{}: pax record without '='", where));
    records[std::string(record.substr(0, equals))] = record.substr(equals + 1);
    text.remove_prefix(length);
  }
  return records;
}

std::string without_dot_slash(std::string name) {
  while (name.starts_with("./")) name.erase(0, 2);
  return name;
}

struct Mapping {
  void* address;
  std::size_t size;
  ~Mapping() { ::munmap(address, size); }
};

// What headers before a file's own say of it.
struct Announced {
  std::optional<std::string> name;
  std::optional<std::uint64_t> size;
};

}  // namespace

TarArchive::TarArchive(std::shared_ptr<const void> owner, std::span<const std::byte> bytes, std::string source)
    : owner_(std::move(owner)), source_(std::move(source)) {
  read_headers(bytes);
}

TarArchive TarArchive::load(const std::filesystem::path& path) {
  const std::string name = path.string();
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw Error(fmt::format("{}: cannot be opened: {}", name, std::strerror(errno)));
  struct stat status{};
  const bool regular = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const address = regular ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  ::close(file);
  if (!regular) throw Error(fmt::format("{}: not a file with something in it; it must be a tar archive", name));
  if (address == MAP_FAILED) throw Error(fmt::format("{}: cannot be read: {}", name, std::strerror(errno)));
  const auto mapping = std::shared_ptr<const Mapping>(new Mapping{address, size});
  const std::span<const std::byte> bytes(static_cast<const std::byte*>(address), size);
  if (is_gzip(bytes)) return parse(gunzip(bytes, name), name);
  return {mapping, bytes, name};
}

TarArchive TarArchive::parse(std::vector<std::byte> bytes, std::string source) {
  const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {owner, *owner, std::move(source)};
}

void TarArchive::read_headers(std::span<const std::byte> bytes) {
  Announced announced;
  for (std::size_t place = 0;;) {
    if (bytes.size() - place < kBlock)
      throw Error(
          fmt::format("{}: the archive ends at byte {} without its end mark; is it complete?", source_, bytes.size()));
    const Block header = bytes.subspan(place, kBlock);
    if (all_zero(header)) break;
    const std::string where = fmt::format("{}: header at byte {}", source_, place);
    if (number_field(header, kChecksum) != checksum(header))
      throw Error(fmt::format("{}: wrong checksum; not a tar archive, or damaged", where));
    const std::optional<std::uint64_t> own_size = number_field(header, kSize);
    if (!own_size) throw Error(fmt::format("{}: the size is not a number", where));
    const char type = static_cast<char>(header[kType.begin]);
    const bool about_next = type == 'L' || type == 'K' || type == 'x' || type == 'g';
    const std::uint64_t size = about_next ? *own_size : announced.size.value_or(*own_size);
    place += kBlock;
    if (size > bytes.size() - place)
      throw Error(fmt::format("{}: {} bytes of data, but the archive has {} left", where, size, bytes.size() - place));
    const Block data = bytes.subspan(place, size);
    place += std::min<std::size_t>((size + kBlock - 1) / kBlock * kBlock, bytes.size() - place);

    if (about_next) {
      if (size > kLongestName) throw Error(fmt::format("{}: {} bytes about one file", where, size));
      if (type == 'L') announced.name = text_of(data).substr(0, text_of(data).find('\0'));
      if (type != 'x' && type != 'g') continue;
      const auto records = pax_records(text_of(data), where);
      if (type == 'g') continue;
      if (const auto path = records.find("path"); path != records.end()) announced.name = path->second;
      if (const auto length = records.find("size"); length != records.end()) {
        std::uint64_t value = 0;
        const char* const end = length->second.data() + length->second.size();
        const auto [rest, failure] = std::from_chars(length->second.data(), end, value);
        if (failure != std::errc{} || rest != end)
          throw Error(fmt::format("{}: pax size \"{}\" is not a number", where, length->second));
        announced.size = value;
      }
      continue;
    }

    std::string name = without_dot_slash(announced.name ? *announced.name : header_name(header));
    announced = {};
    const bool file = type == '0' || type == '\0' || type == '7';
    if (type == '5' || (file && name.ends_with('/'))) {
      while (name.ends_with('/')) name.pop_back();
      if (!name.empty() && name != ".") folders_.push_back(std::move(name));
    } else if (file) {
      if (name.empty()) throw Error(fmt::format("{}: a file without a name", where));
      files_.push_back({std::move(name), data});
    } else {
      left_out_.push_back(std::move(name));
    }
  }
}

}  // namespace mhla::io
