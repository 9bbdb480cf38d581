// Folders and archives of labelled images.
#include "data/image_source.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "io/file.hpp"
#include "support/expect_error.hpp"
#include "support/image_files.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::data {
namespace {

using mhla::testing::bytes_of;
using mhla::testing::make_jpeg;
using mhla::testing::make_tar;
using mhla::testing::TarItem;
using mhla::testing::TemporaryFolder;
using mhla::testing::test_picture;

std::vector<TarItem> small_data_set() {
  return {{"train/river/2.jpg", make_jpeg(test_picture(8, 8, 1))},
          {"train/river/10.JPEG", make_jpeg(test_picture(8, 8, 2))},
          {"train/a-b/1.jpg", make_jpeg(test_picture(8, 8, 3))},
          {"train/a/1.jpg", make_jpeg(test_picture(8, 8, 4))},
          {"train/a/notes.txt", bytes_of("x")},
          {"train/a/.hidden.jpg", bytes_of("x")},
          {"train/empty/", {}},
          {"val/river/1.jpg", make_jpeg(test_picture(8, 8, 5))}};
}

void write_folder(const TemporaryFolder& folder, const std::vector<TarItem>& items) {
  for (const TarItem& item : items)
    if (item.name.ends_with('/')) {
      std::filesystem::create_directories(folder / item.name);
    } else {
      io::write_file(folder / item.name, item.content);
    }
}

TEST(ImageSource, FolderAndArchivesAreTheSame) {
  const TemporaryFolder folder;
  const std::vector<TarItem> items = small_data_set();
  write_folder(folder, items);
  std::vector<TarItem> wrapped = items;
  std::ranges::reverse(wrapped);
  for (TarItem& item : wrapped) item.name = "./set/" + item.name;
  const TemporaryFolder archives;
  io::write_file(archives / "plain.tar", make_tar(items));
  io::write_file(archives / "wrapped.tar.gz", mhla::testing::gzip(make_tar(wrapped)));

  for (const auto& path : {folder.path(), archives / "plain.tar", archives / "wrapped.tar.gz"}) {
    const auto source = open_image_source(path, "train");
    ASSERT_EQ(source->size(), 4) << path;
    EXPECT_EQ(source->classes(), (std::vector<std::string>{"a", "a-b", "river"}));
    const int variants[] = {4, 3, 2, 1};  // by class, then by name: "10.JPEG" comes before "2.jpg"
    const std::int64_t labels[] = {0, 1, 2, 2};
    for (std::int64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(source->label(i), labels[i]);
      EXPECT_EQ(source->load(i), io::decode_image(make_jpeg(test_picture(8, 8, variants[i])), "")) << path << i;
    }
    ASSERT_EQ(source->warnings().size(), 2U);
    EXPECT_TRUE(source->warnings()[0].find("1 file left out") != std::string::npos) << source->warnings()[0];
    EXPECT_TRUE(source->warnings()[0].ends_with("a/notes.txt")) << source->warnings()[0];
    EXPECT_TRUE(source->warnings()[1].find("the class folder \"empty\" is empty; left out") != std::string::npos)
        << source->warnings()[1];
    EXPECT_EQ(image_splits(path), (std::vector<std::string>{"train", "val"}));
  }
  EXPECT_EQ(open_image_source(folder.path(), "train")->name(3), (folder / "train/river/2.jpg").string());
  EXPECT_EQ(open_image_source(archives / "wrapped.tar.gz", "train")->name(3),
            (archives / "wrapped.tar.gz").string() + ": set/train/river/2.jpg");
}

TEST(ImageSource, LabelsOfAnotherSplit) {
  const TemporaryFolder folder;
  write_folder(folder, small_data_set());
  const auto train = open_image_source(folder.path(), "train");
  EXPECT_EQ(open_image_source(folder.path(), "val")->label(0), 0);
  const auto val = open_image_source(folder.path(), "val", train->classes());
  EXPECT_EQ(val->label(0), 2);
  EXPECT_EQ(val->classes(), train->classes());
  expect_error([&] { open_image_source(folder.path(), "train", {"river", "a"}); },
               {"train: the class \"a-b\" is not among those asked for: river, a"});
}

TEST(ImageSource, ClassFoldersAtTheTop) {
  const TemporaryFolder folder;
  write_folder(folder, small_data_set());
  EXPECT_EQ(open_image_source(folder / "train", "")->size(), 4);
}

TEST(ImageSource, LinksToFoldersAreFollowedOnce) {
  const TemporaryFolder folder, elsewhere;
  write_folder(elsewhere, {{"photos/1.jpg", make_jpeg(test_picture(8, 8))}});
  std::filesystem::create_directories(folder / "train");
  std::filesystem::create_directory_symlink(elsewhere / "photos", folder / "train/river");
  EXPECT_EQ(open_image_source(folder.path(), "train")->size(), 1);
  std::filesystem::create_directory_symlink(elsewhere / "photos", folder / "train/lake");
  expect_error([&] { open_image_source(folder.path(), "train"); },
               {(folder / "train/river").string(), (folder / "train/lake").string(), "are the same folder"});
}

// Two links to the folder they lie in.
TEST(ImageSource, LinksInACircleAreRefused) {
  const TemporaryFolder folder;
  write_folder(folder, small_data_set());
  for (const char* name : {"train/a/back", "train/a/again"})
    std::filesystem::create_directory_symlink(folder / "train/a", folder / name);
  expect_error([&] { open_image_source(folder.path(), "train"); },
               {(folder / "train/a").string() + " and ", "are the same folder; remove one of the links"});
}

TEST(ImageSource, LinksThatLeadNowhereAreFilesThatCannotBeRead) {
  const TemporaryFolder folder;
  write_folder(folder, {{"train/a/1.jpg", make_jpeg(test_picture(8, 8))}});
  std::filesystem::create_symlink(folder / "train/a/2.jpg", folder / "train/a/2.jpg");
  std::filesystem::create_symlink(folder / "none.jpg", folder / "train/a/3.jpg");
  const auto source = open_image_source(folder.path(), "train");
  ASSERT_EQ(source->size(), 3);
  expect_error([&] { source->load(1); }, {"2.jpg: cannot be read: Too many levels of symbolic links"});
  expect_error([&] { source->load(2); }, {"3.jpg: there is no such file"});
}

TEST(ImageSource, ErrorsNameThePathAndWhatThereIs) {
  const TemporaryFolder folder;
  write_folder(folder, small_data_set());
  expect_error([&] { open_image_source(folder.path(), "test"); },
               {folder.path().string(), "there is no split \"test\"; there are: train, val"});
  const TemporaryFolder archives;
  io::write_file(archives / "a.tar", make_tar(small_data_set()));
  expect_error([&] { open_image_source(archives / "a.tar", "test"); },
               {"a.tar: there is no split \"test\"; there are: train, val"});
  expect_error([&] { open_image_source(folder / "none", "train"); }, {"none: there is no such folder or tar archive"});
  expect_error([&] { open_image_source(folder / "train", "empty"); }, {"no images; they must lie in <class>/*.jpg"});
  expect_error([&] { open_image_source(folder / "train/a/notes.txt", "train"); },
               {"notes.txt: the archive ends at byte 1"});
}

TEST(ImageSource, ClassesHaveNamesThatCanBeShown) {
  const TemporaryFolder folder;
  std::vector<TarItem> items = {{"train/caf\xE9/1.jpg", make_jpeg(test_picture(8, 8, 1))},
                                {"train/\x1b[2J/1.jpg", make_jpeg(test_picture(8, 8, 2))}};
  write_folder(folder, items);
  const TemporaryFolder archives;
  io::write_file(archives / "plain.tar", make_tar(items));
  for (const auto& path : {folder.path(), archives / "plain.tar"}) {
    const auto source = open_image_source(path, "train");
    EXPECT_EQ(source->classes(), (std::vector<std::string>{"\\x1b[2J", "caf\\xe9"})) << path;
    EXPECT_EQ(source->load(1).rgb.size(), 8U * 8U * 3U);
    EXPECT_EQ(open_image_source(path, "train", {"caf\\xe9", "\\x1b[2J"})->label(0), 0) << path;
  }
  write_folder(folder, {{"train/caf\\xe9/1.jpg", make_jpeg(test_picture(8, 8, 3))}});
  expect_error([&] { open_image_source(folder.path(), "train"); }, {"two class folders are shown as \"caf\\xe9\""});
}

}  // namespace
}  // namespace mhla::data
