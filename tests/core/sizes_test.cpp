// Sizes never wrap around, and outputs whose elements share memory are told apart from those whose do not.
#include "core/sizes.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <set>

#include "core/strides.hpp"
#include "core/workspace.hpp"
#include "support/expect_error.hpp"

namespace mhla {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

TEST(Sizes, DivideUpHoldsForTheLargestNumbers) {
  EXPECT_EQ(divide_up(0, 5), 0);
  EXPECT_EQ(divide_up(10, 5), 2);
  EXPECT_EQ(divide_up(11, 5), 3);
  EXPECT_EQ(divide_up(kHuge, kHuge), 1);
  EXPECT_EQ(divide_up(kHuge, 2), kHuge / 2 + 1);
  EXPECT_EQ(divide_up(3, kHuge), 1);
}

TEST(Sizes, ProductsThatWouldWrapAroundAreRefusedWithTheirFactors) {
  EXPECT_EQ(checked_elements("a x b", {3, 5}), 15);
  EXPECT_EQ(checked_elements("a x b", {kMostElements, 1}), kMostElements);
  EXPECT_EQ(checked_elements("a x b x c", {kHuge, kHuge, 0}), 0);
  const std::int64_t half = std::int64_t{1} << 32;
  expect_error([&] { checked_elements("a x b", {half, half}); }, {"a x b is 4294967296 x 4294967296", "at most 2^48"});
  expect_error([&] { checked_elements("a x b", {kMostElements, 2}); }, {"a x b is", "2^48"});
  expect_error([&] { checked_elements("a x b", {6, 7}, 41); }, {"a x b is 6 x 7; it must be at most 41"});
  expect_error([] { require_size("tokens", -1, 0, 8); }, {"tokens is -1; it must be at least 0"});
  expect_error([] { require_size("tokens", 9, 0, 8); }, {"tokens is 9; it must be at most 8"});
}

TEST(Sizes, AWorkspaceRefusesToGrowBeyondItsAddresses) {
  AlignedWorkspace<64> workspace;
  workspace.take<double>(std::int64_t{1} << 58);
  EXPECT_EQ(workspace.used(), std::size_t{1} << 61);
  workspace.take<float>(1);
  EXPECT_EQ(workspace.used(), (std::size_t{1} << 61) + 64);
  for (int thread = 0; thread < 4096; ++thread) {
    workspace.take<double>(std::int64_t{1} << 56);
    if (thread > 3) expect_error([&] { (void)workspace.used(); }, {"workspace", "2^62 bytes"});
  }
}

Tensor output(std::int64_t batch, std::int64_t token, std::int64_t head) {
  static float memory = 0;
  return {&memory, batch, token, head};
}

TEST(Strides, OutputsWhoseRowsOverlapAreRefusedByTheAxis) {
  const TokenSizes sizes{2, 8, 4, 16};
  const auto refused = [&](const Tensor& x, std::initializer_list<std::string_view> mentions) {
    expect_error([&] { require_apart("o", x, sizes); }, mentions);
  };
  require_apart("o", output(512, 64, 16), sizes);
  require_apart("o", output(512, 16, 128), sizes);    // heads apart, tokens together
  require_apart("o", output(-512, -64, -16), sizes);  // backwards
  require_apart("o", output(4096, 192, 48), sizes);   // a slice of something larger
  require_apart("o", output(16, 128, 32), sizes);     // the batch inside
  refused(output(512, 0, 16), {"o has a token stride of 0", "overlap"});
  refused(output(0, 64, 16), {"o has a batch stride of 0"});
  refused(output(512, 64, 0), {"o has a head stride of 0"});
  refused(output(512, 64, 15), {"o has a head stride of 15", "at least 16"});
  refused(output(512, 16, 16), {"stride of 16", "overlap"});  // tokens are where heads are
  refused(output(511, 64, 16), {"o has a batch stride of 511", "at least 512"});
  refused(output(512, -64, 64), {"stride of", "overlap"});
  // What there is one of has no stride.
  require_apart("o", output(0, 16, 0), {1, 8, 1, 16});
  require_apart("o", output(kHuge, 16, std::numeric_limits<std::int64_t>::min()), {1, 8, 1, 16});
  require_apart("o", output(0, 0, 0), {2, 0, 4, 16});
}

// Against every element of small tensors: what is accepted never overlaps, and what overlaps is never accepted.
TEST(Strides, AnAcceptedOutputHasAPlaceForEveryElement) {
  std::mt19937 random(1);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random); };
  int accepted = 0, overlapping = 0;
  for (int n = 0; n < 20000; ++n) {
    const TokenSizes sizes{draw(1, 3), draw(1, 3), draw(1, 3), draw(1, 3)};
    const Tensor x = output(draw(-30, 30), draw(-30, 30), draw(-30, 30));
    std::set<std::int64_t> places;
    for (std::int64_t b = 0; b < sizes.batch; ++b)
      for (std::int64_t t = 0; t < sizes.tokens; ++t)
        for (std::int64_t h = 0; h < sizes.heads; ++h)
          for (std::int64_t d = 0; d < sizes.dim; ++d)
            places.insert(b * x.batch_stride + t * x.token_stride + h * x.head_stride + d);
    const bool apart = static_cast<std::int64_t>(places.size()) == sizes.batch * sizes.tokens * sizes.heads * sizes.dim;
    bool taken = true;
    try {
      require_apart("o", x, sizes);
    } catch (const Error&) {
      taken = false;
    }
    ASSERT_TRUE(apart || !taken) << sizes.batch << sizes.tokens << sizes.heads << sizes.dim << ": " << x.batch_stride
                                 << " " << x.token_stride << " " << x.head_stride;
    accepted += taken ? 1 : 0;
    overlapping += apart ? 0 : 1;
  }
  EXPECT_GT(accepted, 5000);
  EXPECT_GT(overlapping, 2000);
}

TEST(Strides, AddressesThatWouldWrapAroundAreRefused) {
  const TokenSizes sizes{2, 8, 4, 16};
  const auto input = [](std::int64_t batch, std::int64_t token, std::int64_t head) {
    return ConstTensor{nullptr, batch, token, head};
  };
  require_strides("q", input(0, 0, 0), sizes);  // expanded
  require_strides("q", input(std::int64_t{1} << 50, 64, 16), sizes);
  for (const std::int64_t far : {kHuge, -kHuge, std::numeric_limits<std::int64_t>::min(), std::int64_t{1} << 58}) {
    expect_error([&] { require_strides("q", input(512, far, 16), sizes); }, {"q has a token stride of", "2^59"});
    expect_error([&] { require_apart("o", output(512, far, 16), sizes); }, {"o has a token stride of", "2^59"});
  }
}

}  // namespace
}  // namespace mhla
