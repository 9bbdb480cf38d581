// Folders that appear when they are complete.
#include "io/new_folder.hpp"

#include <gtest/gtest.h>

#include "io/file.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::io {
namespace {

namespace fs = std::filesystem;
using mhla::testing::entries, mhla::testing::TemporaryFolder;

TEST(NewFolder, AppearsWhenItIsFinished) {
  const TemporaryFolder folder;
  {
    NewFolder made(folder / "a/train");
    write_file(made.unfinished() / "1.bin", "one");
    EXPECT_FALSE(fs::exists(folder / "a/train"));
    made.finish();
    EXPECT_TRUE(fs::exists(folder / "a/train/1.bin"));
  }
  EXPECT_TRUE(fs::exists(folder / "a/train/1.bin"));
  EXPECT_EQ(entries(folder / "a"), 1);
}

TEST(NewFolder, LeavesNothingWhenItIsGivenUp) {
  const TemporaryFolder folder;
  {
    const NewFolder made(folder / "train");
    write_file(made.unfinished() / "1.bin", "one");
  }
  EXPECT_EQ(entries(folder.path()), 0);
}

TEST(NewFolder, OfTwoThatMakeTheSameFolderTheSecondIsRefusedAndDoesNoHarm) {
  const TemporaryFolder folder;
  NewFolder made(folder / "train");
  write_file(made.unfinished() / "1.bin", "one");
  expect_error([&] { NewFolder(folder / "train"); }, {(folder / "train").string(), "another process is making"});
  made.finish();
  EXPECT_TRUE(fs::exists(folder / "train/1.bin"));
  expect_error([&] { NewFolder(folder / "train"); }, {(folder / "train").string(), "exists already"});
}

TEST(NewFolder, WhatAKilledProcessLeftIsNoPartOfIt) {
  const TemporaryFolder folder;
  write_file(folder / ".train.unfinished/9.bin", "old");
  NewFolder made(folder / "train");
  made.finish();
  EXPECT_EQ(entries(folder / "train"), 0);
}

TEST(NewFolder, NeverReplacesWhatAppearedMeanwhile) {
  const TemporaryFolder folder;
  {
    NewFolder made(folder / "train");
    write_file(folder / "train/other.bin", "other");
    expect_error([&] { made.finish(); }, {(folder / "train").string(), "cannot be made"});
  }
  EXPECT_TRUE(fs::exists(folder / "train/other.bin"));
  EXPECT_EQ(entries(folder.path()), 1);
  write_file(folder / "file", "text");
  expect_error([&] { NewFolder(folder / "file/below"); }, {(folder / "file/below").string(), "Not a directory"});
}

}  // namespace
}  // namespace mhla::io
