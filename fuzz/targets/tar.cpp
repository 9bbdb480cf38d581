// tar archives, also with the checksums of their headers put right, since most changes break one.
#include "io/tar.hpp"

#include <algorithm>
#include <cstring>

#include "support/image_files.hpp"
#include "support/target.hpp"

using namespace mhla;

namespace {

constexpr std::size_t kBlock = 512, kSumAt = 148, kSumLength = 8;

fuzz::Bytes with_checksums(fuzz::Bytes archive) {
  for (std::size_t at = 0; at + kBlock <= archive.size(); at += kBlock) {
    std::byte* header = &archive[at];
    if (std::memcmp(header + 257, "ustar", 5) != 0) continue;
    std::fill_n(header + kSumAt, kSumLength, std::byte{' '});
    unsigned sum = 0;
    for (std::size_t i = 0; i < kBlock; ++i) sum += std::to_integer<unsigned>(header[i]);
    std::snprintf(reinterpret_cast<char*>(header + kSumAt), kSumLength, "%06o", sum);
  }
  return archive;
}

void judge(const fuzz::Bytes& bytes) {
  fuzz::runs_or_names({"the-file"}, [&] {
    const auto archive = io::TarArchive::parse(bytes, "the-file");
    for (const io::TarEntry& entry : archive.files()) {
      fuzz::expect(!entry.name.empty(), "a file without a name");
      fuzz::touch(entry.data);
    }
  });
}

}  // namespace

fuzz::Inputs fuzz::seeds() {
  using testing::make_tar;
  const std::vector<testing::TarItem> items{
      {"train/", {}, '5'}, {"train/a/1.png", bytes_of("first"), '0'}, {"train/b/2.jpg", Bytes(600, std::byte{7}), '0'}};
  const Bytes plain = make_tar(items);
  return {plain, testing::gzip(plain),
          make_tar({{"././@LongLink", bytes_of(std::string(150, 'n') + '\0'), 'L'}, {"short", bytes_of("x"), '0'}}),
          make_tar({{"pax", bytes_of("19 path=long/name\n12 size=512\n"), 'x'}, {"y", Bytes(512, std::byte{1}), '0'}})};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::Bytes bytes = fuzz::copy_of(fuzz::bytes_of(data, size));
  judge(bytes);
  judge(with_checksums(bytes));
  return 0;
}
