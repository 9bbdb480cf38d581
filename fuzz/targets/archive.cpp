// Archives of labelled images: splits, classes and every picture.
#include <algorithm>

#include "data/image_source.hpp"
#include "io/png.hpp"
#include "support/image_files.hpp"
#include "support/target.hpp"

using namespace mhla;

fuzz::Inputs fuzz::seeds() {
  const io::Image picture = testing::test_picture(3, 2);
  const Bytes png = io::encode_png(picture.rgb, picture.width, picture.height);
  const auto item = [&](const char* name) { return testing::TarItem{name, png, '0'}; };
  return {testing::make_tar({item("train/a/1.png"), item("train/b/2.png"), item("test/a/3.png")}),
          testing::make_tar({item("set/train/a/1.png"), {"set/train/b/", {}, '5'}, item("set/notes.txt")}),
          testing::gzip(testing::make_tar({item("a/1.png"), item("b/1.PNG")}))};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const fuzz::File file(".tar");
  const auto& path = file.with(fuzz::bytes_of(bytes, size));
  fuzz::runs_or_names({file.name()}, [&] {
    std::vector<std::string> splits = data::image_splits(path);
    splits.emplace_back("train");
    splits.emplace_back("");
    for (const std::string& split : splits)
      fuzz::runs_or_names({file.name()}, [&] {
        const auto source = data::open_image_source(path, split);
        for (std::int64_t i = 0; i < source->size(); ++i) {
          const auto classes = static_cast<std::int64_t>(source->classes().size());
          fuzz::expect(source->label(i) >= 0 && source->label(i) < classes, "a label without a class");
          fuzz::runs_or_names({file.name()}, [&] { source->load(i); });
        }
      });
  });
  return 0;
}
