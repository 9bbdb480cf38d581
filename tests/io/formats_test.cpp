// Checksums, CSV and TensorBoard events, byte by byte.
#include <gtest/gtest.h>

#include <cstring>

#include "io/crc32c.hpp"
#include "io/csv.hpp"
#include "io/file.hpp"
#include "io/tfevents.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::io {
namespace {

using mhla::testing::TemporaryFolder;

TEST(Crc32c, HasThePublishedCheckValue) {
  const std::string_view digits = "123456789";
  const auto bytes = std::as_bytes(std::span(digits));
  EXPECT_EQ(crc32c(bytes), 0xE3069283U);
  EXPECT_EQ(crc32c(bytes.subspan(4), crc32c(bytes.first(4))), 0xE3069283U);
  const std::vector<std::byte> zeros(32);
  EXPECT_EQ(crc32c(zeros), 0x8A9136AAU);
}

TEST(Csv, QuotesWhatNeedsIt) {
  EXPECT_EQ(encode_csv({"a", "b,c"}, {{"1", "say \"x\""}}), "a,\"b,c\"\n1,\"say \"\"x\"\"\"\n");
}

// Two records: the version and one scalar, laid out by hand.
TEST(TensorBoard, RecordsAreAsTheFormatSays) {
  const TemporaryFolder folder;
  {
    EventFile events(folder / "events", 0);
    events.scalars(300, std::vector<std::pair<std::string, double>>{{"loss", 1.5}});
  }
  const auto entry = std::filesystem::directory_iterator(folder / "events")->path();
  EXPECT_NE(entry.filename().string().find("tfevents"), std::string::npos);
  const auto bytes = read_file(entry);
  std::vector<std::string> records;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t length = 0;
    std::uint32_t crc = 0;
    std::memcpy(&length, &bytes[at], 8);
    std::memcpy(&crc, &bytes[at + 8], 4);
    const auto masked = [](std::uint32_t value) { return ((value >> 15) | (value << 17)) + 0xA282EAD8U; };
    EXPECT_EQ(crc, masked(crc32c(std::span(bytes).subspan(at, 8))));
    const auto payload = std::span(bytes).subspan(at + 12, length);
    std::memcpy(&crc, &bytes[at + 12 + length], 4);
    EXPECT_EQ(crc, masked(crc32c(payload)));
    records.emplace_back(reinterpret_cast<const char*>(payload.data()), payload.size());
    at += 16 + length;
  }
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].substr(9),
            "\x1A\x0D"
            "brain.Event:2");
  const std::string summary = std::string("\x0A\x0B\x0A\x04") + "loss" + std::string("\x15\x00\x00\xC0\x3F", 5);
  EXPECT_EQ(records[1].substr(9), std::string("\x10\xAC\x02\x2A\x0D") + summary);
}

}  // namespace
}  // namespace mhla::io
