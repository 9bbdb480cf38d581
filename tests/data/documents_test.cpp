// Documents in every kind of file.
#include "data/tokens/documents.hpp"

#include <gtest/gtest.h>

#include "io/file.hpp"
#include "support/expect_error.hpp"
#include "support/image_files.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::data {
namespace {

using mhla::testing::bytes_of, mhla::testing::gzip, mhla::testing::make_tar, mhla::testing::TemporaryFolder;
using Texts = std::vector<std::string>;

Texts documents_of(const std::filesystem::path& file) {
  Texts documents;
  double last = 0.0;
  for_each_document(file, [&](std::string_view document, double done) {
    documents.emplace_back(document);
    EXPECT_GE(done, last);
    EXPECT_LE(done, 1.0);
    last = done;
  });
  return documents;
}

const std::string kPlain =
    "First\nbook\n\n<|endoftext|>\nSecond <|endoftext|> of them\n "
    "<|endoftext|>\n<|endoftext|>\r\n\n<|endoftext|>\nThird";
const Texts kPlainDocuments{"First\nbook\n\n", "Second <|endoftext|> of them\n <|endoftext|>\n", "Third"};
const std::string kLines =
    "{\"id\": 1, \"text\": \"One\\n<|endoftext|>\\n\"}\n\n{\"text\": \"caf\\u00e9\"}\r\n{\"text\": \" \"}";
const Texts kLinesDocuments{"One\n<|endoftext|>\n", "caf\u00E9"};

TEST(Documents, ALineSeparatesThemInPlainText) {
  const TemporaryFolder folder;
  io::write_file(folder / "a.txt", kPlain);
  EXPECT_EQ(documents_of(folder / "a.txt"), kPlainDocuments);
  io::write_file(folder / "b", "<|endoftext|>\n<|endoftext|>");
  EXPECT_EQ(documents_of(folder / "b"), Texts{});
  io::write_file(folder / "c", "<|endoftext|>\na\n<|endoftext|>");
  EXPECT_EQ(documents_of(folder / "c"), Texts{"a\n"});
  io::write_file(folder / "d", "");
  EXPECT_EQ(documents_of(folder / "d"), Texts{});
}

TEST(Documents, OneALineInJsonLines) {
  const TemporaryFolder folder;
  io::write_file(folder / "a.jsonl", kLines);
  EXPECT_EQ(documents_of(folder / "a.jsonl"), kLinesDocuments);
}

TEST(Documents, CompressedFilesAndArchivesHoldTheSame) {
  const TemporaryFolder folder;
  io::write_file(folder / "a.txt.gz", gzip(bytes_of(kPlain)));
  EXPECT_EQ(documents_of(folder / "a.txt.gz"), kPlainDocuments);
  const auto tar = make_tar({{"x/", {}, '5'},
                             {"x/b.jsonl", bytes_of(kLines)},
                             {"x/a.txt", bytes_of(kPlain)},
                             {"x/c.jsonl.gz", gzip(bytes_of(kLines))}});
  Texts expected = kLinesDocuments;
  expected.insert(expected.end(), kPlainDocuments.begin(), kPlainDocuments.end());
  expected.insert(expected.end(), kLinesDocuments.begin(), kLinesDocuments.end());
  io::write_file(folder / "a.tar", tar);
  io::write_file(folder / "b.tgz", gzip(tar));
  io::write_file(folder / "c.tar.gz", gzip(tar));
  for (const char* name : {"a.tar", "b.tgz", "c.tar.gz"}) EXPECT_EQ(documents_of(folder / name), expected) << name;
}

TEST(Documents, AFolderIsItsFilesByName) {
  const TemporaryFolder folder;
  for (const char* name : {"b.txt", "a/z.txt", "a/.hidden", ".git/x", "c.jsonl"}) io::write_file(folder / name, "x");
  const auto files = files_of_text({(folder / "b.txt").string(), folder.path().string()});
  EXPECT_EQ(files, (std::vector<std::filesystem::path>{folder / "b.txt", folder / "a/z.txt", folder / "b.txt",
                                                       folder / "c.jsonl"}));
  std::filesystem::create_directory(folder / "empty");
  expect_error([&] { files_of_text({(folder / "empty").string()}); }, {"empty: the folder has no files"});
}

TEST(Documents, WhatIsNoTextIsRefusedByItsLine) {
  const TemporaryFolder folder;
  const auto refused = [&](const char* name, const std::vector<std::byte>& content, const char* reason) {
    io::write_file(folder / name, content);
    expect_error([&] { documents_of(folder / name); }, {name, reason});
  };
  refused("a.txt", bytes_of("one\n<|endoftext|>\ntwo\ncaf\xE9\n"), "a.txt: line 4 is not UTF-8 text");
  refused("b.zst", bytes_of("\x28\xB5\x2F\xFD"), "b.zst: line 1 is not UTF-8 text");
  refused("c.jsonl", bytes_of("{\"text\": \"x\"}\n{\"text\": \"x\"\n"), "c.jsonl: line 2: not valid JSON");
  refused("d.jsonl", bytes_of("{\"texts\": \"x\"}\n"), "d.jsonl: line 1: must be an object with a text");
  refused("e.jsonl", bytes_of("\n\n{\"text\": 7}\n"), "e.jsonl: line 3: must be an object with a text");
  refused("f.jsonl", bytes_of("[\"text\"]\n"), "f.jsonl: line 1: must be an object with a text");
  refused("g.jsonl", bytes_of("{\"text\": \"\xFF\"}\n"), "g.jsonl: line 1: not valid JSON");
  refused("h.txt.gz", bytes_of("\x1F\x8B\x08"), "h.txt.gz: the gzip data end too early");
  refused("i.tar", make_tar({{"x.txt", bytes_of("\xFF")}}), "i.tar: x.txt: line 1 is not UTF-8 text");
  refused("j.tar", bytes_of("no archive"), "j.tar");
  expect_error([&] { documents_of(folder / "none"); }, {"none: there is no such file"});
}

}  // namespace
}  // namespace mhla::data
