// Archives of arrays, read by numpy.
#include "io/npz.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "io/file.hpp"
#include "support/expect_error.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::io {
namespace {

namespace fs = std::filesystem;
using mhla::testing::run_command;
using mhla::testing::TemporaryFolder;
using Type = NpzWriter::Type;

std::vector<std::uint8_t> counted(std::size_t size) {
  std::vector<std::uint8_t> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<std::uint8_t>(i % 251);
  return values;
}

void write_example(const fs::path& path, std::uint64_t zip64_from) {
  NpzWriter npz(path, zip64_from);
  const auto pixels = counted(5 * 4 * 6 * 3);
  npz.begin("arr_0", Type::uint8, {5, 4, 6, 3});
  npz.write(std::span(pixels).first(100));
  npz.write(std::span(pixels).subspan(100));
  const std::vector<std::int64_t> labels = {3, -1, 0, 1, std::int64_t{1} << 40};
  npz.begin("arr_1", Type::int64, {5});
  npz.write(labels);
  npz.finish();
}

// `member` and `directory`: whether sizes of the pictures and the end of the archive are in the fields of ZIP64.
struct Zip64Case {
  const char* name;
  std::uint64_t from;
  bool member, directory;
};

class Zip64 : public ::testing::TestWithParam<Zip64Case> {};

TEST_P(Zip64, NumpyReadsTheArrays) {
  const TemporaryFolder folder;
  const fs::path path = folder / "a.npz";
  write_example(path, GetParam().from);
  const std::string script = R"(
import sys, zipfile
import numpy as np
path, member, directory = sys.argv[1], sys.argv[2] == "1", sys.argv[3] == "1"
arrays = np.load(path)
assert sorted(arrays.files) == ["arr_0", "arr_1"], arrays.files
a, b = arrays["arr_0"], arrays["arr_1"]
assert a.dtype == np.uint8 and a.shape == (5, 4, 6, 3) and a.flags.c_contiguous
assert (a.ravel() == np.arange(360) % 251).all()
assert b.dtype == np.int64 and b.tolist() == [3, -1, 0, 1, 1 << 40]
archive = zipfile.ZipFile(path)
assert archive.testzip() is None
assert all(i.compress_type == zipfile.ZIP_STORED for i in archive.infolist())
assert (archive.getinfo("arr_0.npy").extract_version == 45) == member
assert (b"PK\x06\x06" in open(path, "rb").read()) == directory
)";
  const auto run = run_command(std::string(MHLA_PYTHON) + " -c '" + script + "' '" + path.string() + "' " +
                               (GetParam().member ? "1" : "0") + (GetParam().directory ? " 1" : " 0") + " 2>&1");
  EXPECT_EQ(run.exit_code, 0) << run.out;
}

INSTANTIATE_TEST_SUITE_P(Table, Zip64,
                         ::testing::Values(Zip64Case{"NotNeeded", ZipWriter::kZip64From, false, false},
                                           Zip64Case{"ForPlacesOfMembersBehindALargeOne", 450, true, true},
                                           Zip64Case{"ForTheDirectoryAlone", 600, false, true},
                                           Zip64Case{"ForEverything", 0, true, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Npz, EqualArraysGiveEqualFiles) {
  const TemporaryFolder folder;
  write_example(folder / "a.npz", ZipWriter::kZip64From);
  write_example(folder / "b.npz", ZipWriter::kZip64From);
  EXPECT_EQ(read_file(folder / "a.npz"), read_file(folder / "b.npz"));
}

TEST(Npz, AFileIsThereWhenItIsComplete) {
  const TemporaryFolder folder;
  {
    NpzWriter npz(folder / "a.npz");
    npz.begin("arr_0", Type::uint8, {100});
    npz.write(counted(60));
    EXPECT_FALSE(fs::exists(folder / "a.npz"));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Npz, AnotherNumberOfElementsThanAnnouncedIsAnError) {
  const TemporaryFolder folder;
  NpzWriter npz(folder / "a.npz");
  npz.begin("arr_0", Type::uint8, {100});
  npz.write(counted(60));
  expect_error([&] { npz.write(counted(41)); }, {"a.npz: more bytes than its member has"});
  expect_error([&] { npz.finish(); }, {"a.npz: member arr_0.npy has 188 bytes; 228 were announced"});
}

}  // namespace
}  // namespace mhla::io
