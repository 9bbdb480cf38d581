// Partition: where tokens go, what ragged edges do, and which layouts are refused.
#include "mhla/partition.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <set>

#include "support/expect_error.hpp"

namespace mhla {
namespace {

const std::vector<Partition>& assorted() {
  static const std::vector<Partition> partitions{
      Partition::line(0, 4),
      Partition::line(1, 4),
      Partition::line(300, 64),
      Partition::line(256, 64),
      Partition::grid({16, 16}, {4, 4}),
      Partition::grid({7, 10}, {3, 4}),
      Partition::grid({1, 13}, {1, 5}),
      Partition::grid({6, 10, 20}, {3, 5, 10}),
      Partition::grid({5, 7, 9}, {2, 3, 5}),
      Partition::by_extent({5, 7}, {2, 9}),
      Partition::grid({4, 0}, {2, 1}),
  };
  return partitions;
}

TEST(Partition, FollowsTheFormulasOfTheGrid) {
  const Partition image = Partition::grid({16, 16}, {4, 4});
  for (std::int64_t r = 0; r < 16; ++r)
    for (std::int64_t c = 0; c < 16; ++c) {
      EXPECT_EQ(image.block_of(r * 16 + c), (r / 4) * 4 + c / 4);
      EXPECT_EQ(image.slot_of(r * 16 + c), (r % 4) * 4 + c % 4);
    }
  const Partition video = Partition::grid({6, 10, 20}, {3, 5, 10});
  for (std::int64_t f = 0; f < 6; ++f)
    for (std::int64_t h = 0; h < 10; ++h)
      for (std::int64_t w = 0; w < 20; ++w) {
        const std::int64_t token = (f * 10 + h) * 20 + w;
        EXPECT_EQ(video.block_of(token), ((f / 2) * 5 + h / 2) * 10 + w / 2);
        EXPECT_EQ(video.slot_of(token), ((f % 2) * 2 + h % 2) * 2 + w % 2);
      }
}

TEST(Partition, BlockOrderVisitsEveryTokenOnceAndBlockByBlock) {
  for (const Partition& partition : assorted()) {
    SCOPED_TRACE(partition.describe());
    const auto order = partition.block_order();
    const auto offsets = partition.block_offsets();
    ASSERT_EQ(static_cast<std::int64_t>(order.size()), partition.tokens());
    ASSERT_EQ(static_cast<std::int64_t>(offsets.size()), partition.blocks() + 1);
    EXPECT_EQ(offsets.back(), partition.tokens());
    EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), order.size());
    for (std::int64_t block = 0; block < partition.blocks(); ++block) {
      EXPECT_GT(partition.block_tokens(block), 0);
      EXPECT_LE(partition.block_tokens(block), partition.block_capacity());
      std::int64_t last_slot = -1;
      for (std::int64_t n = offsets[block]; n < offsets[block + 1]; ++n) {
        EXPECT_EQ(partition.block_of(order[n]), block);
        EXPECT_GT(partition.slot_of(order[n]), last_slot);
        last_slot = partition.slot_of(order[n]);
        EXPECT_LT(last_slot, partition.block_capacity());
      }
    }
  }
}

TEST(Partition, RunsAreTheTokensOfTheBlockWithTheirSlots) {
  for (const Partition& partition : assorted()) {
    SCOPED_TRACE(partition.describe());
    const auto order = partition.block_order();
    std::size_t position = 0;
    for (std::int64_t block = 0; block < partition.blocks(); ++block) {
      const Partition::BlockRuns runs = partition.runs(block);
      for (std::int64_t n = 0; n < runs.size(); ++n)
        for (std::int64_t i = 0; i < runs[n].count; ++i, ++position) {
          ASSERT_LT(position, order.size());
          EXPECT_EQ(runs[n].token + i, order[position]);
          EXPECT_EQ(partition.block_of(runs[n].token + i), block);
          EXPECT_EQ(partition.slot_of(runs[n].token + i), runs[n].slot + i);
        }
    }
    EXPECT_EQ(position, order.size());
  }
}

TEST(Partition, EqualSlotsLieAtEqualOffsetsFromTheCornerInRaggedBlocks) {
  const Partition partition =
      Partition::grid({5, 7}, {2, 3});  // extents 3 x 3; last row of blocks 2 high, last column 1 wide
  EXPECT_EQ(partition.slot_of(0 * 7 + 1), 1);
  EXPECT_EQ(partition.slot_of(4 * 7 + 6), 3);  // second row, first column of its block
  EXPECT_EQ(partition.block_of(4 * 7 + 6), 5);
  EXPECT_EQ(partition.block_tokens(5), 2);
}

TEST(Partition, LastBlockOfALineTakesTheRest) {
  const Partition partition = Partition::line(300, 64);
  EXPECT_EQ(partition.blocks(), 5);
  EXPECT_EQ(partition.block_tokens(3), 64);
  EXPECT_EQ(partition.block_tokens(4), 44);
  EXPECT_EQ(partition.block_capacity(), 64);
  EXPECT_EQ(Partition::line(3, 64).blocks(), 1);
  EXPECT_EQ(Partition::line(3, 64).block_capacity(), 64);
}

TEST(Partition, GridsByCountAndByExtentAgree) {
  EXPECT_EQ(Partition::grid({16, 12}, {4, 3}), Partition::by_extent({16, 12}, {4, 4}));
  EXPECT_EQ(Partition::line(300, 64), Partition::by_extent({300}, {64}));
  EXPECT_NE(Partition::line(300, 64), Partition::line(300, 63));
}

TEST(Partition, CentresAreInUnitsOfBlocks) {
  const Partition partition = Partition::grid({6, 10, 20}, {3, 5, 10});
  const auto first = partition.block_centre(0);
  const auto other = partition.block_centre((2 * 5 + 3) * 10 + 7);
  EXPECT_EQ(other[0] - first[0], 2);
  EXPECT_EQ(other[1] - first[1], 3);
  EXPECT_EQ(other[2] - first[2], 7);
}

TEST(Partition, NoTokensMakeNoBlocks) {
  for (const Partition& partition :
       {Partition::line(0, 5), Partition::grid({4, 0}, {2, 1}), Partition::grid({0, 9, 9}, {1, 3, 3})}) {
    EXPECT_EQ(partition.tokens(), 0);
    EXPECT_EQ(partition.blocks(), 0);
    EXPECT_TRUE(partition.block_order().empty());
    EXPECT_EQ(partition.block_offsets(), std::vector<std::int64_t>{0});
  }
}

TEST(Partition, DescribesItself) {
  EXPECT_EQ(Partition::grid({16, 16}, {4, 4}).describe(), "grid 16x16, blocks of 4x4, M = 16");
  EXPECT_EQ(Partition::line(300, 64).describe(), "line 300, blocks of 64, M = 5");
}

TEST(Partition, EmptyBlocksAreRefusedWithTheNearestValidCounts) {
  for (std::int64_t size = 1; size <= 60; ++size) {
    std::set<std::int64_t> valid;
    for (std::int64_t extent = 1; extent <= size; ++extent) valid.insert((size + extent - 1) / extent);
    for (std::int64_t count = 1; count <= size; ++count) {
      if (valid.contains(count)) {
        EXPECT_EQ(Partition::grid({size}, {count}).blocks(), count);
        continue;
      }
      const auto above = valid.upper_bound(count);
      expect_error(
          [&] { Partition::grid({size}, {count}); },
          {"blocks[0] is " + std::to_string(count),
           "nearest valid counts are " + std::to_string(*std::prev(above)) + " and " + std::to_string(*above)});
    }
  }
}

TEST(Partition, BadLayoutsAreRefusedByName) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  expect_error([] { Partition::line(-1, 4); }, {"tokens is -1"});
  expect_error([] { Partition::line(4, 0); }, {"block_size is 0", "at least 1"});
  expect_error([] { Partition::line(4, -3); }, {"block_size is -3"});
  expect_error([] { Partition::grid({4, -4}, {1, 1}); }, {"sizes[1] is -4"});
  expect_error([] { Partition::grid({4, 4}, {1, 0}); }, {"blocks[1] is 0"});
  expect_error([] { Partition::grid({4, 4}, {5, 1}); }, {"blocks[0] is 5", "4 tokens"});
  expect_error([] { Partition::grid({4, 4}, {2}); }, {"blocks has 1 axes", "needs 2"});
  expect_error([] { Partition::grid({}, {}); }, {"sizes has 0 axes"});
  expect_error([] { Partition::grid({2, 2, 2, 2}, {1, 1, 1, 1}); }, {"sizes has 4 axes"});
  expect_error([] { Partition::by_extent({4, 4}, {2, 0}); }, {"extents[1] is 0"});
  expect_error([] { Partition::grid({kHuge, 4}, {1, 1}); }, {"sizes are", "64 bits"});
  expect_error([] { Partition::by_extent({4, 4}, {kHuge, kHuge}); }, {"extents are", "64 bits"});
  EXPECT_EQ(Partition::line(kHuge, kHuge).blocks(), 1);
  EXPECT_EQ(Partition::line(kHuge, 2).blocks(), kHuge / 2 + 1);
}

TEST(Partition, IndicesOutsideAreRefused) {
  const Partition partition = Partition::line(10, 4);
  expect_error([&] { partition.block_of(10); }, {"token is 10", "0 to 9"});
  expect_error([&] { partition.slot_of(-1); }, {"token is -1"});
  expect_error([&] { partition.block_tokens(3); }, {"block is 3", "0 to 2"});
  expect_error([&] { partition.block_centre(-1); }, {"block is -1"});
}

}  // namespace
}  // namespace mhla
