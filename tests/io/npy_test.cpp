// Arrays of NumPy: what is in them, and what is refused.
#include "io/npy.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "support/expect_error.hpp"

namespace mhla::io {
namespace {

std::string file_of(const std::string& header, const std::string& data, char version = 1) {
  std::string file = "\x93NUMPY";
  file += version;
  file += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return file + header + data;
}

NpyArray parse(const std::string& file) { return parse_npy(std::as_bytes(std::span(file)), "a.npy"); }

TEST(Npy, HasTypeShapeAndNumbersInBothVersions) {
  for (const char version : {1, 2}) {
    const std::string file =
        file_of("{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }\n", std::string(12, '\1'), version);
    const NpyArray array = parse(file);
    EXPECT_EQ(array.dtype, "I16");
    EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(array.data.size(), 12U);
  }
  const std::string scalar = file_of("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", std::string(8, '\0'));
  EXPECT_TRUE(parse(scalar).shape.empty());
}

TEST(Npy, RefusesWhatItCannotRead) {
  const auto refused = [](const std::string& file, std::string_view why) {
    expect_error([&] { parse(file); }, {"a.npy", why});
  };
  const std::string good = file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", std::string(4, '\0'));
  refused("PK", "no .npy file");
  for (std::size_t size = 6; size < good.size(); ++size) EXPECT_THROW(parse(good.substr(0, size)), Error) << size;
  refused(file_of("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", "1234"), "'>f4'");
  refused(file_of("{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }", "1234"), "Fortran order");
  refused(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "1234"), "needs 8");
  refused(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "1234"), "list of sizes");
  refused(file_of("{'descr': '<f4', 'fortran_order': False, 'shape': (9000000000, 9000000000), }", "1234"),
          "overflows");
  refused(file_of("{'descr': '<f4', 'fortran_order': False, }", "1234"), "'shape'");
}

}  // namespace
}  // namespace mhla::io
