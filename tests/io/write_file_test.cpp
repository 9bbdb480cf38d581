// Writing of files: what is replaced, what is followed, what is written to.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fstream>
#include <future>

#include "io/disk_space.hpp"
#include "io/file.hpp"
#include "io/json.hpp"
#include "io/new_file.hpp"
#include "io/output_file.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::io {
namespace {

namespace fs = std::filesystem;
using mhla::testing::entries, mhla::testing::TemporaryFolder;

std::string text_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(WriteFile, MakesFoldersReplacesAndLeavesNothingBeside) {
  const TemporaryFolder folder;
  const auto path = folder / "a/b/c.txt";
  write_file(path, "first");
  write_file(path, "second");
  EXPECT_EQ(text_of(path), "second");
  EXPECT_EQ(entries(path.parent_path()), 1);
}

TEST(WriteFile, AFailureNamesThePathAndLeavesNothing) {
  const TemporaryFolder folder;
  fs::create_directories(folder / "target/inside");
  expect_error([&] { write_file(folder / "target", "text"); }, {(folder / "target").string(), "Is a directory"});
  EXPECT_EQ(entries(folder.path()), 1);
  write_file(folder / "plain", "text");
  expect_error([&] { write_file(folder / "plain/below", "text"); }, {(folder / "plain").string(), "Not a directory"});
}

TEST(WriteFile, APipeIsWrittenToAndStaysAPipe) {
  const TemporaryFolder folder;
  const auto pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  auto reader = std::async(std::launch::async, [&] { return text_of(pipe); });
  write_json(pipe.string(), {{"a", 1}});
  ASSERT_TRUE(fs::is_fifo(pipe));
  EXPECT_EQ(reader.get(), "{\n  \"a\": 1\n}\n");
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WriteFile, ADeviceIsWrittenToAndStaysADevice) {
  const TemporaryFolder folder;
  const auto device = folder / "null";
  const dev_t null = ::makedev(1, 3);
  if (::mknod(device.c_str(), S_IFCHR | 0600, null) == 0) {  // where the test may make one
    if (const int open = ::open(device.c_str(), O_WRONLY); open >= 0) {
      ::close(open);
      write_file(device, "text");
    }
    EXPECT_TRUE(fs::is_character_file(device));
    fs::remove(device);
  }
  fs::create_symlink("/dev/null", device);
  write_file(device, "text");
  EXPECT_TRUE(fs::is_symlink(device));
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WriteFile, AFullDeviceIsAnErrorWithFileAndReason) {
  const TemporaryFolder folder;
  fs::create_symlink("/dev/full", folder / "full");
  expect_error([&] { write_file(folder / "full", "text"); },
               {(folder / "full").string() + ": 4 bytes cannot be written: No space left on device"});
}

TEST(WriteFile, LinksAreFollowed) {
  const TemporaryFolder folder;
  write_file(folder / "there/old", "old");
  fs::create_symlink("there/old", folder / "link");
  fs::create_symlink("link", folder / "link to link");
  write_file(folder / "link to link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_TRUE(fs::is_symlink(folder / "link to link"));
  EXPECT_EQ(text_of(folder / "there/old"), "new");
  EXPECT_EQ(entries(folder / "there"), 1);

  fs::create_symlink("elsewhere/made", folder / "dangling");
  write_file(folder / "dangling", "made");
  EXPECT_TRUE(fs::is_symlink(folder / "dangling"));
  EXPECT_EQ(text_of(folder / "elsewhere/made"), "made");

  fs::create_symlink("circle", folder / "circle");
  expect_error([&] { write_file(folder / "circle", "text"); },
               {(folder / "circle").string(), "Too many levels of symbolic links"});
  EXPECT_EQ(entries(folder.path()), 6);
}

TEST(WriteFile, AReplacedFileKeepsItsPermissions) {
  const TemporaryFolder folder;
  write_file(folder / "secret", "old");
  fs::permissions(folder / "secret", fs::perms::owner_read | fs::perms::owner_write);
  write_file(folder / "secret", "new");
  EXPECT_EQ(fs::status(folder / "secret").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(WriteFile, LeftoversOfKilledProcessesAreRemovedAndNothingElse) {
  const TemporaryFolder folder;
  const std::string_view text = "whole";
  write_durably(folder / "kept", std::as_bytes(std::span(text)));
  write_file(folder / "kept.1234.unfinished", "half");
  write_file(folder / "my novel.unfinished", "of the user");
  remove_unfinished(folder.path());
  EXPECT_EQ(text_of(folder / "kept"), text);
  EXPECT_EQ(text_of(folder / "my novel.unfinished"), "of the user");
  EXPECT_EQ(entries(folder.path()), 2);
}

TEST(NewFile, AppearsWhenItIsFinished) {
  const TemporaryFolder folder;
  write_file(folder / "file", "old");
  NewFile file(folder / "file");
  file.write("new");
  file.write(", longer");
  EXPECT_EQ(text_of(folder / "file"), "old");
  file.finish();
  EXPECT_EQ(text_of(folder / "file"), "new, longer");
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(NewFile, LeavesNothingWhenItIsGivenUp) {
  const TemporaryFolder folder;
  write_file(folder / "file", "old");
  {
    NewFile file(folder / "file");
    file.write("half");
  }
  EXPECT_EQ(text_of(folder / "file"), "old");
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(DiskSpace, IsThatOfTheFolderTheFileWillBeIn) {
  const TemporaryFolder folder;
  const auto free = free_bytes(folder / "file");
  ASSERT_TRUE(free);
  EXPECT_GT(*free, 0U);
  EXPECT_LT(*free, std::uintmax_t{1} << 60);
  EXPECT_TRUE(free_bytes(folder / "not/yet/there/file"));
  EXPECT_TRUE(free_bytes("file"));
  EXPECT_FALSE(free_bytes("/dev/null"));
}

TEST(OutputFile, EveryFailureHasFileAndReason) {
  const TemporaryFolder folder;
  const std::string missing = (folder / "missing/file").string();
  expect_error([&] { OutputFile(missing, O_WRONLY | O_CREAT); },
               {missing + ": cannot be written: No such file or directory"});
  OutputFile full("/dev/full", O_WRONLY, "the full one");
  expect_error([&] { full.write("text"); }, {"the full one: 4 bytes cannot be written: No space left on device"});
  OutputFile twice(folder / "file", O_WRONLY | O_CREAT);
  twice.close();
  expect_error([&] { twice.close(); }, {"file: cannot be written: Bad file descriptor"});
}

}  // namespace
}  // namespace mhla::io
