// gzip files: never more bytes than asked for.
#include "io/gzip.hpp"

#include "support/image_files.hpp"
#include "support/target.hpp"

using namespace mhla;

fuzz::Inputs fuzz::seeds() {
  const Bytes one = testing::gzip(bytes_of("one member")), other = testing::gzip(Bytes(3000, std::byte{9}));
  Bytes both = one;
  both.insert(both.end(), other.begin(), other.end());
  return {one, other, both};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMost = 1 << 20;
  fuzz::runs_or_names({"the-file"}, [&] {
    fuzz::expect(io::gunzip(fuzz::bytes_of(data, size), "the-file", kMost).size() <= kMost, "more than asked for");
  });
  return 0;
}
