// Tar archives: the formats in use are read, and what is damaged is refused.
#include "io/tar.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "io/file.hpp"
#include "io/gzip.hpp"
#include "mhla/types.hpp"
#include "support/expect_error.hpp"
#include "support/image_files.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::io {
namespace {

using mhla::testing::bytes_of;
using mhla::testing::make_tar;
using mhla::testing::tar_header;
using Bytes = std::vector<std::byte>;

std::string text(const TarEntry& entry) {
  return {reinterpret_cast<const char*>(entry.data.data()), entry.data.size()};
}

Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// One file's header and data without the archive's end.
Bytes member(const std::string& name, const std::string& content, char type = '0') {
  Bytes bytes = make_tar({{name, bytes_of(content), type}});
  bytes.resize(bytes.size() - 1024);
  return bytes;
}

const Bytes kEnd(1024);

std::string pax_record(const std::string& key, const std::string& value) {
  const std::string body = " " + key + "=" + value + "\n";
  std::size_t length = body.size() + 1;
  while (std::to_string(length).size() + body.size() != length) ++length;
  return std::to_string(length) + body;
}

TEST(Tar, FilesAndFolders) {
  const TarArchive archive = TarArchive::parse(
      make_tar(
          {{"./train/", {}}, {"./train/a.txt", bytes_of("hello")}, {"b", bytes_of(std::string(512, 'x'))}, {"c", {}}}),
      "a.tar");
  ASSERT_EQ(archive.files().size(), 3U);
  EXPECT_EQ(archive.folders(), std::vector<std::string>{"train"});
  EXPECT_EQ(archive.files()[0].name, "train/a.txt");
  EXPECT_EQ(text(archive.files()[0]), "hello");
  EXPECT_EQ(text(archive.files()[1]), std::string(512, 'x'));
  EXPECT_EQ(text(archive.files()[2]), "");
}

TEST(Tar, LongNamesOfEveryFormat) {
  const std::string name = std::string(150, 'd') + "/" + std::string(120, 'n') + ".jpg";
  Bytes ustar = tar_header("name.jpg", 2, '0');
  const std::string prefix = "some/prefix";
  for (std::size_t i = 0; i < prefix.size(); ++i) ustar[345 + i] = static_cast<std::byte>(prefix[i]);
  // The checksum again: the prefix's bytes come on top.
  unsigned sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += i >= 148 && i < 156 ? ' ' : std::to_integer<unsigned>(ustar[i]);
  char digits[8];
  std::snprintf(digits, sizeof digits, "%06o", sum);
  for (std::size_t i = 0; i < 7; ++i) ustar[148 + i] = static_cast<std::byte>(digits[i]);
  Bytes content(512);
  content[0] = content[1] = std::byte{'!'};

  const TarArchive archive =
      TarArchive::parse(joined({member("././@LongLink", name + '\0', 'L'), member("short", "gnu"),
                                member("PaxHeaders/x", pax_record("mtime", "1.5") + pax_record("path", name), 'x'),
                                member("short", "pax"), ustar, content, member("plain", "plain"), kEnd}),
                        "a.tar");
  ASSERT_EQ(archive.files().size(), 4U);
  EXPECT_EQ(archive.files()[0].name, name);
  EXPECT_EQ(text(archive.files()[0]), "gnu");
  EXPECT_EQ(archive.files()[1].name, name);
  EXPECT_EQ(text(archive.files()[1]), "pax");
  EXPECT_EQ(archive.files()[2].name, "some/prefix/name.jpg");
  EXPECT_EQ(text(archive.files()[2]), "!!");
  EXPECT_EQ(archive.files()[3].name, "plain");
}

TEST(Tar, PaxSizeReplacesTheHeaders) {
  Bytes header = tar_header("a", 0, '0');
  Bytes content = bytes_of("12345");
  content.resize(512);
  const TarArchive archive =
      TarArchive::parse(joined({member("x", pax_record("size", "5"), 'x'), header, content, kEnd}), "a.tar");
  ASSERT_EQ(archive.files().size(), 1U);
  EXPECT_EQ(text(archive.files()[0]), "12345");
}

TEST(Tar, LinksAreNamedAsLeftOut) {
  const TarArchive archive =
      TarArchive::parse(joined({member("a", "1"), member("link", "", '2'), member("hard", "", '1'), kEnd}), "a.tar");
  EXPECT_EQ(archive.files().size(), 1U);
  EXPECT_EQ(archive.left_out(), (std::vector<std::string>{"link", "hard"}));
}

TEST(Tar, PlainAndCompressedFilesAreTheSame) {
  const mhla::testing::TemporaryFolder folder;
  const Bytes tar = make_tar({{"a", bytes_of("one")}, {"b", bytes_of(std::string(100000, 'z'))}});
  write_file(folder / "a.tar", tar);
  write_file(folder / "a.tar.gz", mhla::testing::gzip(tar));
  for (const char* name : {"a.tar", "a.tar.gz"}) {
    const TarArchive archive = TarArchive::load(folder / name);
    ASSERT_EQ(archive.files().size(), 2U) << name;
    EXPECT_EQ(text(archive.files()[0]), "one");
    EXPECT_EQ(text(archive.files()[1]), std::string(100000, 'z'));
  }
}

TEST(Tar, BadFilesAreRefusedWithPlaceAndReason) {
  const auto refused = [](Bytes bytes, std::string_view reason) {
    expect_error([&] { TarArchive::parse(std::move(bytes), "bad.tar"); }, {"bad.tar: ", reason});
  };
  const Bytes good = member("a", "content");
  refused({}, "ends at byte 0 without its end mark");
  refused(bytes_of("no tar"), "ends at byte 6 without its end mark");
  refused(good, "ends at byte 1024 without its end mark");
  refused(Bytes(600, std::byte{'x'}), "header at byte 0: wrong checksum; not a tar archive, or damaged");
  Bytes changed = joined({good, kEnd});
  changed[3] = std::byte{'z'};
  refused(changed, "header at byte 0: wrong checksum");
  refused(joined({good, tar_header("b", 4096, '0'), kEnd}),
          "header at byte 1024: 4096 bytes of data, but the archive has 1024 left");
  refused(joined({tar_header("b", std::size_t{1} << 32, '0'), kEnd}), "4294967296 bytes of data");
  refused(joined({tar_header("", 0, '0'), kEnd}), "a file without a name");
  refused(joined({member("x", "99 path=a\n", 'x'), good, kEnd}), "malformed pax header");
  refused(joined({member("x", "7 path\n", 'x'), good, kEnd}), "pax record without '='");
  refused(joined({member("x", pax_record("size", "5x"), 'x'), good, kEnd}), "pax size \"5x\" is not a number");
  refused(joined({member("x", pax_record("size", "99999"), 'x'), good, kEnd}), "99999 bytes of data");
  refused(joined({member("x", std::string(70000, 'a'), 'L'), good, kEnd}), "70000 bytes about one file");
}

TEST(Tar, FilesThatAreNoArchives) {
  const mhla::testing::TemporaryFolder folder;
  expect_error([&] { TarArchive::load(folder / "none.tar"); }, {"none.tar: cannot be opened: No such file"});
  write_file(folder / "empty.tar", std::string_view());
  expect_error([&] { TarArchive::load(folder / "empty.tar"); }, {"empty.tar: not a file with something in it"});
  expect_error([&] { TarArchive::load(folder.path()); }, {"not a file with something in it"});
}

TEST(Gzip, MembersAreJoinedAndDamageIsRefused) {
  const Bytes text = bytes_of(std::string(5000, 'a') + "end");
  const Bytes packed = mhla::testing::gzip(text);
  EXPECT_EQ(gunzip(packed, "a.gz"), text);
  EXPECT_EQ(gunzip(joined({packed, packed}), "a.gz"), joined({text, text}));
  EXPECT_EQ(gunzip(mhla::testing::gzip(Bytes{}), "a.gz"), Bytes{});
  for (std::size_t size = 2; size < packed.size(); ++size)
    expect_error([&] { gunzip(std::span(packed).first(size), "cut.gz"); }, {"cut.gz: "});
  Bytes wrong = packed;
  wrong[wrong.size() - 6] ^= std::byte{1};
  expect_error([&] { gunzip(wrong, "a.gz"); }, {"a.gz: damaged gzip data: incorrect data check"});
  expect_error([&] { gunzip(packed, "a.gz", 1000); }, {"a.gz: unpacks to more than 1000 bytes"});
}

// A file of a few MB unpacks to 1,000 times its size; it is given up long before.
TEST(Gzip, AFileMadeToExhaustTheMemoryIsRefusedWithItsLimit) {
  EXPECT_EQ(most_unpacked(0), std::size_t{1} << 26);
  EXPECT_EQ(most_unpacked(10'000'000), 1'000'000'000U);
  EXPECT_EQ(most_unpacked(std::size_t{1} << 60), std::size_t{1} << 34);
  const Bytes zeros = mhla::testing::gzip(Bytes(std::size_t{1} << 23));
  Bytes bomb;
  for (int i = 0; i < 9; ++i) bomb.insert(bomb.end(), zeros.begin(), zeros.end());
  EXPECT_LT(bomb.size(), 500'000U);
  expect_error([&] { gunzip(bomb, "bomb.tar.gz"); },
               {"bomb.tar.gz: unpacks to more than 67108864 bytes; unpack it to a folder"});
}

// Seeded damage to valid archives: they load, or throw an Error; never anything else.
TEST(Tar, DamagedArchivesNeverCrash) {
  const Bytes valid = joined({member("././@LongLink", std::string(200, 'n') + '\0', 'L'), member("short", "gnu"),
                              member("x", pax_record("path", "p/q") + pax_record("size", "3"), 'x'),
                              member("short", "pax"), member("folder/", ""), member("a", std::string(700, 'c')), kEnd});
  std::mt19937_64 random(11);
  int refused = 0;
  constexpr int kTrials = 20000;
  for (int trial = 0; trial < kTrials; ++trial) {
    Bytes bytes = mhla::testing::damaged(valid, random);
    // Half of the time the checksums are made to fit, so that the damage gets past them.
    for (std::size_t place = 0; trial % 2 == 0 && place + 512 <= bytes.size(); place += 512) {
      if (bytes[place + 156] < std::byte{'0'} || bytes[place + 257] != std::byte{'u'}) continue;
      unsigned sum = 8 * ' ';
      for (std::size_t i = 0; i < 512; ++i)
        sum += i >= 148 && i < 156 ? 0U : std::to_integer<unsigned>(bytes[place + i]);
      char digits[8];
      std::snprintf(digits, sizeof digits, "%06o", sum & 0777777U);
      for (std::size_t i = 0; i < 7; ++i) bytes[place + 148 + i] = static_cast<std::byte>(digits[i]);
    }
    try {
      const std::size_t size = bytes.size();
      const TarArchive archive = TarArchive::parse(std::move(bytes), "damaged");
      std::size_t total = 0;
      for (const TarEntry& entry : archive.files())
        for (const std::byte value : entry.data) total += std::to_integer<std::size_t>(value);
      EXPECT_LE(total, 255 * size);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, kTrials / 4);
  EXPECT_LT(refused, kTrials);
}

}  // namespace
}  // namespace mhla::io
