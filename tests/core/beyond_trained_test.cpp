// Which blocks a stream keeps: one by one, as a sum, and with what weights.
#include "core/beyond_trained.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace mhla {
namespace {

std::vector<double> matrix(std::int64_t trained) {
  std::vector<double> values(static_cast<std::size_t>(trained * trained));
  for (std::size_t n = 0; n < values.size(); ++n) values[n] = 0.1 + static_cast<double>(n * 7 % 11);
  return values;
}

constexpr BeyondTrained kPolicies[] = {BeyondTrained::clamp, BeyondTrained::running_mean, BeyondTrained::interpolate};

TEST(KeptBlocks, EveryEarlierBlockIsEitherKeptOrFolded) {
  for (const BeyondTrained beyond : kPolicies)
    for (const std::int64_t trained : {1, 2, 5}) {
      const KeptBlocks kept(beyond, trained);
      std::set<std::int64_t> folded;
      for (std::int64_t block = 0; block < 20; ++block) {
        if (kept.is_folded(block)) {
          EXPECT_EQ(static_cast<std::int64_t>(folded.size()), kept.first(block));
          for (std::int64_t b = 0; b < kept.first(block); ++b) EXPECT_TRUE(folded.contains(b));
        } else {
          EXPECT_EQ(kept.first(block), 0);
        }
        EXPECT_LE(block - kept.first(block), kept.slots);
        if (const std::int64_t leaving = kept.leaving(block); leaving >= 0) {
          EXPECT_GT(leaving, block - kept.slots) << "its slot is taken already";
          folded.insert(leaving);
        }
      }
    }
}

TEST(KeptBlocks, FoldedBlocksHaveOneWeight) {
  for (const BeyondTrained beyond : kPolicies)
    for (const std::int64_t trained : {1, 2, 5}) {
      const KeptBlocks kept(beyond, trained);
      const std::vector<double> mixing = matrix(trained);
      for (std::int64_t block = 0; block < 20; ++block) {
        const auto row = mixing_row(mixing.data(), trained, block, beyond);
        for (std::int64_t b = 0; b < kept.first(block); ++b) EXPECT_EQ(row[b], row[0]);
      }
    }
}

TEST(KeptBlocks, MatrixOfACallHasTheRowsOfTheExtendedOne) {
  for (const BeyondTrained beyond : kPolicies)
    for (const std::int64_t trained : {1, 2, 5})
      for (const std::int64_t block : {0, 1, 4, 9}) {
        constexpr std::int64_t kOwn = 3;
        const KeptBlocks kept(beyond, trained);
        const std::vector<double> mixing = matrix(trained);
        const auto part = mixing_from(kept, std::span<const double>(mixing), 1, block, kOwn);
        const auto whole = extend_causal_mixing(mixing, trained, block + kOwn, beyond);
        const std::int64_t first = kept.first(block), n = kept.history(block) + kOwn;
        ASSERT_EQ(static_cast<std::int64_t>(part.size()), n * n);
        for (std::int64_t i = block; i < block + kOwn; ++i) {
          const double* row = part.data() + (kept.history(block) + i - block) * n;
          if (first > 0) {
            EXPECT_EQ(*row++, whole[static_cast<std::size_t>(i * (block + kOwn))]);
          }
          for (std::int64_t b = first; b <= i; ++b)
            EXPECT_EQ(*row++, whole[static_cast<std::size_t>(i * (block + kOwn) + b)]) << i << ", " << b;
        }
      }
}

TEST(KeptBlocks, FewerBlocksThanTrainedNeedNoSum) {
  for (const BeyondTrained beyond : kPolicies) {
    const KeptBlocks kept(beyond, 8, 3);
    EXPECT_EQ(kept.slots, 3);
    EXPECT_FALSE(kept.folds);
  }
}

}  // namespace
}  // namespace mhla
