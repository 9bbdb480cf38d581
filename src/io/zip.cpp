// Zip archives out.
#include "io/zip.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <concepts>

#include "mhla/types.hpp"

namespace mhla::io {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50, kDescriptor = 0x08074b50, kDirectoryEntry = 0x02014b50;
constexpr std::uint32_t kDirectoryEnd = 0x06054b50, kZip64End = 0x06064b50, kZip64Locator = 0x07064b50;
constexpr std::uint16_t kSizesFollow = 1U << 3U;  // a flag: checksum and size come after the data
constexpr std::uint16_t kStored = 0;              // a method
constexpr std::uint16_t kVersion = 20, kVersionZip64 = 45, kUnix = 3U << 8U;
constexpr std::uint16_t kNoTime = 0, kNoDate = 0x21;  // the first of January 1980: archives of equal data are equal
constexpr std::uint32_t kPermissions = 0100644U << 16U;
constexpr std::uint16_t kZip64Field = 1;
constexpr std::uint32_t kInZip64 = 0xFFFFFFFF;  // instead of a number that the ZIP64 field has
constexpr std::size_t kMostMembers = 1000;

// Little-endian numbers, one after another.
class Record {
 public:
  template <std::unsigned_integral... Numbers>
  explicit Record(Numbers... numbers) {
    add(numbers...);
  }

  template <std::unsigned_integral... Numbers>
  void add(Numbers... numbers) {
    (add_one(numbers), ...);
  }
  void add(const std::string& text) {
    for (const char letter : text) bytes.push_back(static_cast<std::byte>(letter));
  }
  void add(const Record& other) { bytes.insert(bytes.end(), other.bytes.begin(), other.bytes.end()); }

  std::uint16_t size() const { return static_cast<std::uint16_t>(bytes.size()); }

  std::vector<std::byte> bytes;

 private:
  template <std::unsigned_integral Number>
  void add_one(Number number) {
    for (std::size_t i = 0; i < sizeof(Number); ++i) bytes.push_back(static_cast<std::byte>(number >> (8 * i)));
  }
};

std::uint16_t u16(std::size_t value) { return static_cast<std::uint16_t>(value); }

}  // namespace

ZipWriter::ZipWriter(const std::filesystem::path& path, std::uint64_t zip64_from)
    : file_(path), zip64_from_(zip64_from) {}

void ZipWriter::put(std::span<const std::byte> bytes) {
  file_.write(bytes);
  place_ += bytes.size();
}

void ZipWriter::begin(const std::string& name, std::uint64_t size) {
  end_member();
  if (members_.size() == kMostMembers) throw Error(fmt::format("{}: more than {} members", file_.name(), kMostMembers));
  members_.push_back({.name = name, .place = place_, .size = size, .zip64 = large(size)});
  const bool zip64 = members_.back().zip64;
  const std::uint32_t stored_size = zip64 ? kInZip64 : 0;
  Record field;
  if (zip64) field.add(kZip64Field, u16(16), std::uint64_t{0}, std::uint64_t{0});
  Record header(kLocalHeader, zip64 ? kVersionZip64 : kVersion, kSizesFollow, kStored, kNoTime, kNoDate,
                std::uint32_t{0}, stored_size, stored_size, u16(name.size()), field.size());
  header.add(name);
  header.add(field);
  put(header.bytes);
}

void ZipWriter::write(std::span<const std::byte> bytes) {
  if (members_.empty() || bytes.size() > members_.back().size - members_.back().written)
    throw Error(fmt::format("{}: more bytes than its member has", file_.name()));
  Member& member = members_.back();
  member.checksum = static_cast<std::uint32_t>(
      ::crc32_z(member.checksum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  member.written += bytes.size();
  put(bytes);
}

void ZipWriter::end_member() {
  if (members_.empty()) return;
  const Member& member = members_.back();
  if (member.written != member.size)
    throw Error(fmt::format("{}: member {} has {} bytes; {} were announced", file_.name(), member.name, member.written,
                            member.size));
  Record descriptor(kDescriptor, member.checksum);
  if (member.zip64)
    descriptor.add(member.size, member.size);
  else
    descriptor.add(static_cast<std::uint32_t>(member.size), static_cast<std::uint32_t>(member.size));
  put(descriptor.bytes);
}

std::vector<std::byte> ZipWriter::directory_entry(const Member& member) const {
  const bool far = large(member.place), zip64 = member.zip64 || far;
  Record numbers;
  if (member.zip64) numbers.add(member.size, member.size);
  if (far) numbers.add(member.place);
  Record field;
  if (zip64) {
    field.add(kZip64Field, numbers.size());
    field.add(numbers);
  }
  const std::uint16_t version = zip64 ? kVersionZip64 : kVersion;
  const std::uint32_t size = member.zip64 ? kInZip64 : static_cast<std::uint32_t>(member.size);
  Record entry(kDirectoryEntry, u16(kUnix | version), version, kSizesFollow, kStored, kNoTime, kNoDate, member.checksum,
               size, size, u16(member.name.size()), field.size(), u16(0), u16(0), u16(0), kPermissions,
               far ? kInZip64 : static_cast<std::uint32_t>(member.place));
  entry.add(member.name);
  entry.add(field);
  return entry.bytes;
}

std::vector<std::byte> ZipWriter::directory_end(std::uint64_t size) const {
  const std::uint64_t place = place_ - size, count = members_.size();
  const bool zip64 = large(place) || large(size);
  Record end;
  if (zip64) {
    constexpr std::uint64_t kRest = 44;  // bytes of the record after this number
    end.add(kZip64End, kRest, u16(kUnix | kVersionZip64), kVersionZip64, std::uint32_t{0}, std::uint32_t{0}, count,
            count, size, place);
    end.add(kZip64Locator, std::uint32_t{0}, place_, std::uint32_t{1});
  }
  end.add(kDirectoryEnd, u16(0), u16(0), u16(count), u16(count), zip64 ? kInZip64 : static_cast<std::uint32_t>(size),
          zip64 ? kInZip64 : static_cast<std::uint32_t>(place), u16(0));
  return end.bytes;
}

void ZipWriter::finish() {
  end_member();
  const std::uint64_t directory = place_;
  for (const Member& member : members_) put(directory_entry(member));
  put(directory_end(place_ - directory));
  file_.finish();
}

}  // namespace mhla::io
