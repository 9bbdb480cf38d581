// Protocol-buffer encoding of the few fields of Event that scalars need:
//   Event        1: wall_time (double)  2: step (int64)  3: file_version (string)  5: Summary  7: SessionLog
//   Summary      1: Value (repeated)    Value  1: tag (string)  2: simple_value (float)
//   SessionLog   1: status (enum; 1 is START)
#include "io/tfevents.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstring>

#include "io/crc32c.hpp"

namespace mhla::io {
namespace {

static_assert(std::endian::native == std::endian::little);

enum WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string event_varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7FU) | 0x80U);
  return bytes + static_cast<char>(value);
}

template <class T>
std::string event_raw(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

std::string event_key(int field, WireType type) { return event_varint(static_cast<std::uint64_t>(field) << 3 | type); }
std::string event_bytes_field(int field, const std::string& value) {
  return event_key(field, kBytes) + event_varint(value.size()) + value;
}
std::string event_varint_field(int field, std::int64_t value) {
  return event_key(field, kVarint) + event_varint(static_cast<std::uint64_t>(value));
}

double event_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string event_wall_time() { return event_key(1, kFixed64) + event_raw(event_now()); }

std::string masked_crc(const std::string& bytes) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return event_raw(std::rotr(crc, 15) + 0xA282EAD8U);
}

// TensorBoard reads the files of a folder in the order of their names.
std::filesystem::path new_event_file(const std::filesystem::path& folder, std::int64_t first_step) {
  std::error_code failure;  // which the opening of the file reports
  std::filesystem::create_directories(folder, failure);
  return folder / fmt::format("events.out.tfevents.{:010.0f}.mhla.{}.{}", event_now(), first_step, ::getpid());
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t first_step)
    : file_(new_event_file(folder, first_step), O_WRONLY | O_CREAT | O_TRUNC) {
  record(event_wall_time() + event_bytes_field(3, "brain.Event:2"));
  if (first_step > 0)
    record(event_wall_time() + event_varint_field(2, first_step) + event_bytes_field(7, event_varint_field(1, 1)));
}

void EventFile::scalars(std::int64_t step, std::span<const std::pair<std::string, double>> values) {
  std::string summary;
  for (const auto& [tag, value] : values)
    summary +=
        event_bytes_field(1, event_bytes_field(1, tag) + event_key(2, kFixed32) + event_raw(static_cast<float>(value)));
  record(event_wall_time() + event_varint_field(2, step) + event_bytes_field(5, summary));
}

void EventFile::record(const std::string& event) {
  const std::string length = event_raw(static_cast<std::uint64_t>(event.size()));
  file_.write(length + masked_crc(length) + event + masked_crc(event));
}

}  // namespace mhla::io
