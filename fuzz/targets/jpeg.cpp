// JPEG pictures.
#include "io/image.hpp"
#include "support/image_files.hpp"
#include "support/target.hpp"

using namespace mhla;

fuzz::Inputs fuzz::seeds() {
  using testing::JpegKind;
  Inputs inputs;
  for (const JpegKind kind : {JpegKind::rgb, JpegKind::grey, JpegKind::cmyk, JpegKind::ycck, JpegKind::progressive})
    inputs.push_back(testing::make_jpeg(testing::test_picture(17, 23), kind, 60));
  return inputs;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::runs_or_names({"the-file"}, [&] {
    const io::Image image = io::decode_image(fuzz::bytes_of(data, size), "the-file");
    fuzz::expect(image.height > 0 && image.width > 0 &&
                     image.rgb.size() == static_cast<std::size_t>(image.height * image.width * 3),
                 "an image with other bytes than its size says");
  });
  return 0;
}
