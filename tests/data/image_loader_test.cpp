// Batches: what they hold is the same whatever the threads and processes, bad images are counted and left out.
#include "data/image_loader.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "mhla/types.hpp"
#include "support/expect_error.hpp"
#include "support/image_files.hpp"

namespace mhla::data {
namespace {

using mhla::testing::test_picture;

// Images of different sizes; image i has the constant blue value i, and those in `bad` cannot be read.
class PictureSource final : public ImageSource {
 public:
  explicit PictureSource(std::int64_t count, std::set<std::int64_t> bad = {})
      : ImageSource(listing(count), "pictures", {}), bad_(std::move(bad)) {}

  std::string name(std::int64_t index) const override { return "pictures/" + items_[index].path; }
  io::Image load(std::int64_t index) const override {
    if (bad_.contains(index)) throw Error(name(index) + ": damaged JPEG: it is only a test");
    io::Image image = test_picture(20 + index % 3, 16 + index % 5);
    for (std::size_t i = 2; i < image.rgb.size(); i += 3) image.rgb[i] = static_cast<std::uint8_t>(index);
    return image;
  }

 private:
  static Listing listing(std::int64_t count) {
    Listing result;
    for (std::int64_t i = 0; i < count; ++i)
      result.files.push_back(
          {std::string(1, static_cast<char>('a' + i * 3 / count)) + "/" + std::to_string(1000 + i) + ".jpg"});
    return result;
  }

  std::set<std::int64_t> bad_;
};

ImageLoaderOptions small_options() {
  return {.batch = 12,
          .image_size = {16, 16},
          .train = true,
          .augmentation = augmentation_preset("deit"),
          .seed = 3,
          .threads = 2,
          .report = [](const std::string&) {}};
}

std::vector<ImageBatch> epoch_of(ImageLoader& loader, std::int64_t epoch, std::int64_t first = 0) {
  std::vector<ImageBatch> batches;
  loader.start(epoch, first);
  while (auto batch = loader.next()) batches.push_back(*std::move(batch));
  return batches;
}

void expect_same(const ImageBatch& a, const ImageBatch& b) {
  EXPECT_TRUE(at::equal(a.images, b.images));
  EXPECT_TRUE(at::equal(a.labels, b.labels));
  EXPECT_EQ(a.targets.defined(), b.targets.defined());
  if (a.targets.defined()) {
    EXPECT_TRUE(at::equal(a.targets, b.targets));
  }
  EXPECT_EQ(a.bad, b.bad);
}

void expect_same(const std::vector<ImageBatch>& a, const std::vector<ImageBatch>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) expect_same(a[i], b[i]);
}

TEST(ImageLoader, ThreadsPrefetchAndCacheChangeNothing) {
  const auto source = std::make_shared<PictureSource>(50, std::set<std::int64_t>{7});
  ImageLoaderOptions options = small_options();
  options.threads = 1;
  options.prefetch = 1;
  ImageLoader one(source, options);
  const std::vector<ImageBatch> expected = epoch_of(one, 2);
  EXPECT_EQ(expected.size(), 4U);
  for (const bool cache : {false, true}) {
    options.threads = 5;
    options.prefetch = 3;
    options.cache = cache;
    ImageLoader several(source, options);
    epoch_of(several, 1);
    expect_same(epoch_of(several, 2), expected);
    expect_same(epoch_of(several, 2), expected);
  }
}

TEST(ImageLoader, ProcessesTogetherSeeWhatOneSees) {
  const auto source = std::make_shared<PictureSource>(50, std::set<std::int64_t>{7, 30});
  for (const bool train : {true, false}) {
    ImageLoaderOptions options = small_options();
    options.train = train;
    ImageLoader one(source, options);
    const std::vector<ImageBatch> expected = epoch_of(one, 4);
    for (const std::int64_t world : {2, 3, 6}) {
      std::vector<std::vector<ImageBatch>> parts;
      for (std::int64_t rank = 0; rank < world; ++rank) {
        options.rank = rank;
        options.world = world;
        ImageLoader loader(source, options);
        EXPECT_EQ(loader.batches(), one.batches());
        parts.push_back(epoch_of(loader, 4));
        ASSERT_EQ(parts.back().size(), expected.size());
      }
      options.rank = 0;
      options.world = 1;
      for (std::size_t b = 0; b < expected.size(); ++b) {
        std::vector<at::Tensor> images, labels, targets;
        std::int64_t bad = 0;
        for (const auto& part : parts) {
          images.push_back(part[b].images);
          labels.push_back(part[b].labels);
          if (train) targets.push_back(part[b].targets);
          bad += part[b].bad;
        }
        expect_same({at::cat(images), train ? at::cat(targets) : at::Tensor(), at::cat(labels), bad}, expected[b]);
      }
    }
  }
}

TEST(ImageLoader, AnEpochCanBeginAnywhere) {
  const auto source = std::make_shared<PictureSource>(60);
  ImageLoader loader(source, small_options());
  const std::vector<ImageBatch> whole = epoch_of(loader, 7);
  ASSERT_EQ(whole.size(), 5U);
  loader.start(3);
  loader.next();  // and the rest of this epoch is left
  const std::vector<ImageBatch> rest = epoch_of(loader, 7, 3);
  ASSERT_EQ(rest.size(), 2U);
  expect_same(rest[0], whole[3]);
  expect_same(rest[1], whole[4]);
  EXPECT_TRUE(epoch_of(loader, 7, 5).empty());
  EXPECT_FALSE(loader.next());
}

TEST(ImageLoader, TrainingShufflesAnewEveryEpochAndSeed) {
  const auto source = std::make_shared<PictureSource>(48);
  ImageLoaderOptions options = small_options();
  options.augmentation = {};
  options.normalization = {{0, 0, 0}, {1, 1, 1}};
  const auto order = [](ImageLoader& loader, std::int64_t epoch) {
    std::vector<int> seen;  // the blue value says which image it is
    for (const ImageBatch& batch : epoch_of(loader, epoch))
      for (std::int64_t i = 0; i < batch.images.size(0); ++i)
        seen.push_back(static_cast<int>(std::lround(batch.images[i][2][8][8].item<double>() * 255.0)));
    return seen;
  };
  ImageLoader loader(source, options);
  const std::vector<int> first = order(loader, 0), second = order(loader, 1);
  EXPECT_NE(first, second);
  options.seed = 4;
  ImageLoader other(source, options);
  EXPECT_NE(order(other, 0), first);
  for (std::vector<int> seen : {first, second}) {
    std::ranges::sort(seen);
    for (int i = 0; i < 48; ++i) EXPECT_EQ(seen[i], i);
  }
}

TEST(ImageLoader, EvaluationSeesEveryImageOnceInOrder) {
  const auto source = std::make_shared<PictureSource>(31);
  ImageLoaderOptions options = small_options();
  options.train = false;
  ImageLoader loader(source, options);
  EXPECT_EQ(loader.batches(), 3);
  const std::vector<ImageBatch> batches = epoch_of(loader, 0);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches[2].images.size(0), 7);
  EXPECT_FALSE(batches[0].targets.defined());
  std::int64_t index = 0;
  for (const ImageBatch& batch : batches)
    for (std::int64_t i = 0; i < batch.labels.size(0); ++i)
      EXPECT_EQ(batch.labels[i].item<std::int64_t>(), source->label(index++));
  EXPECT_EQ(index, 31);
}

TEST(ImageLoader, MixedPairsShareTheirTargets) {
  const auto source = std::make_shared<PictureSource>(48);
  ImageLoaderOptions options = small_options();
  options.augmentation = {.mixup = 1.0};
  ImageLoader loader(source, options);
  for (const ImageBatch& batch : epoch_of(loader, 0)) {
    EXPECT_TRUE(at::allclose(batch.targets.sum(1), at::ones({12})));
    // Both of a pair give away the same share, so what one lost the other has.
    const at::Tensor own = at::one_hot(batch.labels, 3).to(at::kFloat);
    const at::Tensor pairs = (batch.targets - own).reshape({6, 2, 3});
    EXPECT_TRUE(at::allclose(pairs.sum(1), at::zeros({6, 3}), 0.0, 1e-6));
  }
}

TEST(ImageLoader, BadImagesAreReportedOnceCountedAndLeftOut) {
  const auto source = std::make_shared<PictureSource>(48, std::set<std::int64_t>{0, 5, 40});
  ImageLoaderOptions options = small_options();
  std::vector<std::string> messages;
  options.report = [&](const std::string& message) { messages.push_back(message); };
  ImageLoader loader(source, options);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    std::int64_t bad = 0, good = 0;
    for (const ImageBatch& batch : epoch_of(loader, epoch)) {
      EXPECT_EQ(batch.images.size(0) + batch.bad, 12);
      EXPECT_EQ(batch.labels.size(0), batch.images.size(0));
      EXPECT_EQ(batch.targets.size(0), batch.images.size(0));
      bad += batch.bad;
      good += batch.images.size(0);
    }
    EXPECT_EQ(bad, 3);
    EXPECT_EQ(good, 45);
  }
  EXPECT_EQ(loader.bad_images().size(), 3U);
  std::ranges::sort(messages);
  EXPECT_EQ(messages, (std::vector<std::string>{"pictures/a/1000.jpg: damaged JPEG: it is only a test",
                                                "pictures/a/1005.jpg: damaged JPEG: it is only a test",
                                                "pictures/c/1040.jpg: damaged JPEG: it is only a test"}));
}

TEST(ImageLoader, ABatchOfBadImagesIsEmpty) {
  std::set<std::int64_t> all;
  for (std::int64_t i = 0; i < 12; ++i) all.insert(i);
  ImageLoader loader(std::make_shared<PictureSource>(12, all), small_options());
  const std::vector<ImageBatch> batches = epoch_of(loader, 0);
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(batches[0].images.sizes(), (std::vector<std::int64_t>{0, 3, 16, 16}));
  EXPECT_EQ(batches[0].bad, 12);
}

// Anything but an unreadable image ends the epoch and reaches the caller.
TEST(ImageLoader, OtherFailuresReachTheCaller) {
  ImageLoaderOptions options = small_options();
  options.report = [](const std::string&) { throw std::runtime_error("no space for the message"); };
  ImageLoader loader(std::make_shared<PictureSource>(48, std::set<std::int64_t>{5}), options);
  EXPECT_THROW(epoch_of(loader, 0), std::runtime_error);
}

TEST(ImageLoader, BadOptionsAreNamed) {
  const auto refused = [](auto change, std::string_view reason) {
    ImageLoaderOptions options = small_options();
    change(options);
    expect_error([&] { ImageLoader(std::make_shared<PictureSource>(20), options); }, {reason});
  };
  refused([](auto& o) { o.batch = 0; }, "batch is 0; it may be 1 or more");
  refused([](auto& o) { o.batch = 24; }, "batch is 24; it may be at most the 20 images");
  refused([](auto& o) { o.world = 5; }, "batch is 12; it may be a multiple of the 5 processes");
  refused([](auto& o) { o.world = 4; }, "batch is 12; it may be an even number per process");
  refused([](auto& o) { o.rank = 1; }, "rank is 1; it may be 0 to 0");
  refused([](auto& o) { o.image_size = {16}; }, "it may be 2: height and width");
  refused([](auto& o) { o.image_size = {16, 0}; }, "image_size is 0");
  refused([](auto& o) { o.prefetch = 0; }, "prefetch is 0");
  refused([](auto& o) { o.threads = -1; }, "threads is -1");
  refused([](auto& o) { o.crop_fraction = 0.0; }, "crop_fraction is 0");
  refused([](auto& o) { o.normalization.std[1] = 0.0F; }, "normalization std is 0");
  refused([](auto& o) { o.augmentation.flip = 2.0; }, "flip is 2");
  ImageLoader loader(std::make_shared<PictureSource>(20), small_options());
  expect_error([&] { loader.start(0, 2); }, {"first_batch is 2; it may be 0 to 1"});
  expect_error([&] { loader.start(-1); }, {"epoch is -1"});
}

}  // namespace
}  // namespace mhla::data
