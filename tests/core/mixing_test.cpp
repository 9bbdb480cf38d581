// Mixing matrices: initial values against published numbers, projection, and layouts other than the trained one.
#include "mhla/mixing.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/expect_error.hpp"
#include "support/parity_file.hpp"

namespace mhla {
namespace {

constexpr MixingInit kEveryInit[] = {MixingInit::paper,   MixingInit::linear,       MixingInit::cos,
                                     MixingInit::exp,     MixingInit::gaussian,     MixingInit::local,
                                     MixingInit::uniform, MixingInit::running_mean, MixingInit::constant};

double row_sum(const std::vector<double>& mixing, std::size_t blocks, std::size_t row) {
  double sum = 0;
  for (std::size_t b = 0; b < blocks; ++b) sum += mixing[row * blocks + b];
  return sum;
}

struct Expected {
  std::size_t row, column;
  double value;
};

void expect_entries(const std::vector<double>& mixing, std::size_t blocks, std::initializer_list<Expected> entries) {
  ASSERT_EQ(mixing.size(), blocks * blocks);
  for (const Expected& entry : entries)
    EXPECT_NEAR(mixing[entry.row * blocks + entry.column], entry.value, 6e-8)
        << "[" << entry.row << ", " << entry.column << "]";
}

TEST(MixingInit, MatchesTheNumbersOfTheSpecification) {
  const Partition four = Partition::grid({16, 16}, {4, 4});
  expect_entries(mixing_init(four, MixingInit::linear), 16,
                 {{0, 0, .1443607},
                  {0, 1, .0911185},
                  {0, 5, .0666254},
                  {5, 0, .0962404},
                  {5, 5, .0999381},
                  {8, 0, .0763084},
                  {0, 8, .0630184},
                  {0, 15, 0}});
  expect_entries(mixing_init(four, MixingInit::cos), 16,
                 {{0, 0, .0707331}, {0, 5, .0635978}, {5, 0, .0683230}, {5, 5, .0658413}, {0, 15, .0500159}});
  expect_entries(mixing_init(four, MixingInit::exp), 16,
                 {{0, 0, .1298726}, {0, 5, .0644940}, {5, 0, .0810568}, {5, 5, .1033351}, {0, 15, .0315742}});
  expect_entries(mixing_init(four, MixingInit::exp, {.sigma = 1}), 16,
                 {{0, 0, .3603143}, {0, 5, .0578674}, {5, 0, .0875984}, {5, 5, .2380231}, {0, 15, .0051776}});
  expect_entries(mixing_init(four, MixingInit::gaussian), 16,
                 {{0, 0, 1}, {0, 5, .6065307}, {5, 0, .6065307}, {5, 5, 1}, {0, 15, .0111090}});
  expect_entries(mixing_init(four, MixingInit::local), 16,
                 {{0, 0, .25}, {0, 5, .1111111}, {5, 0, .25}, {5, 5, .1111111}, {0, 15, 0}});
  expect_entries(mixing_init(four, MixingInit::paper), 16,
                 {{0, 0, .1443607}, {0, 1, .1103345}, {8, 0, .0632265}, {8, 8, .1419863}});
  expect_entries(mixing_init(Partition::grid({56, 56}, {7, 7}), MixingInit::linear), 49,
                 {{0, 0, .0458238}, {0, 1, .0355297}, {24, 24, .0296889}, {24, 0, .0229119}});
  expect_entries(mixing_init(Partition::grid({4, 4}, {2, 2}), MixingInit::linear), 4,
                 {{0, 0, .6306019}, {1, 1, .6306019}, {0, 1, .1846990}, {0, 3, 0}, {1, 2, 0}});
  expect_entries(mixing_init(Partition::grid({6, 10, 20}, {3, 5, 10}), MixingInit::linear), 150,
                 {{0, 0, .0147320}, {0, 1, .0115691}, {75, 75, .0096462}, {75, 0, .0067030}});
}

TEST(MixingInit, MatchesTheAuthorsCodeForTheVideoLayout) {
  const ParityFile file("wan_mixing_init");
  const Partition partition = Partition::grid({21, 30, 50}, {3, 5, 10});
  for (const MixingInit init :
       {MixingInit::linear, MixingInit::cos, MixingInit::exp, MixingInit::gaussian, MixingInit::local}) {
    SCOPED_TRACE(name(init));
    const std::vector<float> expected = file.tensor("out/init_" + std::string(name(init)));
    const std::vector<double> mixing = mixing_init(partition, init);
    ASSERT_EQ(mixing.size(), expected.size());
    double error = 0, size = 0;
    for (std::size_t n = 0; n < mixing.size(); ++n) {
      error += (mixing[n] - expected[n]) * (mixing[n] - expected[n]);
      size += static_cast<double>(expected[n]) * expected[n];
    }
    EXPECT_LT(std::sqrt(error / size), 1e-6);
  }
}

TEST(MixingInit, PaperRowsAndUniformRowsSumToOne) {
  for (const Partition& partition : {Partition::grid({7, 10}, {3, 4}), Partition::line(300, 64), Partition::line(2, 1)})
    for (const MixingInit init : {MixingInit::paper, MixingInit::uniform, MixingInit::running_mean}) {
      const auto blocks = static_cast<std::size_t>(partition.blocks());
      const std::vector<double> mixing = mixing_init(partition, init);
      for (std::size_t i = 0; i < blocks; ++i) EXPECT_NEAR(row_sum(mixing, blocks, i), 1, 1e-14);
    }
}

TEST(MixingInit, OneBlockIsNeverNaN) {
  for (const MixingInit init : kEveryInit)
    EXPECT_EQ(mixing_init(Partition::line(5, 8), init), std::vector<double>{1.0}) << name(init);
}

TEST(MixingInit, NoBlocksMakeAnEmptyMatrix) {
  for (const MixingInit init : kEveryInit) EXPECT_TRUE(mixing_init(Partition::line(0, 8), init).empty()) << name(init);
}

TEST(MixingInit, RunningMeanAndConstantAreWhatTheySay) {
  EXPECT_EQ(mixing_init(Partition::line(3, 1), MixingInit::running_mean),
            (std::vector<double>{1, 0, 0, 1. / 2, 1. / 2, 0, 1. / 3, 1. / 3, 1. / 3}));
  EXPECT_EQ(mixing_init(Partition::line(2, 1), MixingInit::constant, {.value = 1e-6}), std::vector<double>(4, 1e-6));
}

TEST(MixingInit, BadOptionsAreRefusedByName) {
  const Partition partition = Partition::line(4, 2);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect_error([&] { mixing_init(partition, MixingInit::exp, {.sigma = 0}); }, {"sigma is 0"});
  expect_error([&] { mixing_init(partition, MixingInit::exp, {.sigma = nan}); }, {"sigma is nan"});
  expect_error([&] { mixing_init(partition, MixingInit::local, {.threshold = -1}); }, {"threshold is -1"});
  expect_error([&] { mixing_init(partition, MixingInit::constant, {.value = nan}); }, {"value is nan"});
  expect_error([&] { mixing_init(Partition::line(std::int64_t{1} << 40, 1), MixingInit::uniform); },
               {"partition", "blocks"});
}

TEST(ProjectMixing, ClampsAndNormalisesRows) {
  std::vector<float> mixing{-1.0F, 0.5F, 2.0F, 1.0F};
  project_mixing(mixing, 2);
  EXPECT_EQ(mixing, (std::vector<float>{0.0F, 0.5F, 1.0F, 1.0F}));
  project_mixing(mixing, 2, true);
  EXPECT_EQ(mixing, (std::vector<float>{0.0F, 1.0F, 0.5F, 0.5F}));
  std::vector<double> zeros{-1, -2, 3, 1};
  project_mixing(zeros, 2, true);
  EXPECT_EQ(zeros, (std::vector<double>{0, 0, 0.5, 0.5}));
  std::vector<double> language{0, 2, 0.5, 1e-9};
  project_mixing(language, 2, false, 1e-5, 1.0);
  EXPECT_EQ(language, (std::vector<double>{1e-5, 1, 0.5, 1e-5}));
}

TEST(ProjectMixing, RefusesBadArgumentsAndWritesNothing) {
  std::vector<double> mixing{3, 0, std::numeric_limits<double>::quiet_NaN(), 0};
  expect_error([&] { project_mixing(mixing, 2); }, {"mixing[1, 0] is NaN"});
  EXPECT_EQ(mixing[0], 3);
  expect_error([&] { project_mixing(mixing, 3); }, {"mixing has 4 entries", "3 x 3"});
  expect_error([&] { project_mixing(mixing, -2); }, {"blocks is -2"});
  expect_error([&] { project_mixing(mixing, 2, false, 1.0, 0.0); }, {"low is 1"});
}

TEST(ResizeMixing, TheSameLayoutIsUnchanged) {
  const Partition partition = Partition::grid({9, 10, 8}, {3, 5, 2});
  const std::vector<double> mixing = mixing_init(partition, MixingInit::linear);
  EXPECT_EQ(resize_mixing(mixing, partition, partition), mixing);
  EXPECT_EQ(resize_mixing(mixing, partition, Partition::grid({18, 20, 16}, {3, 5, 2})), mixing);
}

TEST(ResizeMixing, KeepsRowSumsAndConstants) {
  const Partition from = Partition::grid({16, 16}, {4, 4});
  const Partition to = Partition::grid({21, 15}, {7, 5});
  const std::vector<double> paper = resize_mixing(mixing_init(from, MixingInit::paper), from, to);
  for (std::size_t i = 0; i < 35; ++i) EXPECT_NEAR(row_sum(paper, 35, i), 1, 1e-12);
  for (const double value : resize_mixing(mixing_init(from, MixingInit::uniform), from, to))
    EXPECT_NEAR(value, 1.0 / 35, 1e-14);
}

TEST(ResizeMixing, InterpolatesRelativePositionsLinearly) {
  // Two blocks to four: centres lie at -1/4, 1/4, 3/4, 5/4 of the two, kept within them.
  const std::vector<double> mixing{1, 0, 0, 1};
  const std::vector<double> doubled = resize_mixing(mixing, Partition::line(2, 1), Partition::line(4, 1));
  const double at[] = {0, .25, .75, 1};
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t b = 0; b < 4; ++b)
      EXPECT_NEAR(doubled[i * 4 + b], ((1 - at[i]) * (1 - at[b]) + at[i] * at[b]) / 2, 1e-15) << i << ", " << b;
}

TEST(ResizeMixing, KeepsLocality) {
  const Partition from = Partition::grid({16, 16}, {4, 4});
  const Partition to = Partition::grid({24, 24}, {6, 6});
  const std::vector<double> mixing = resize_mixing(mixing_init(from, MixingInit::paper), from, to);
  for (std::size_t i = 0; i < 36; ++i) EXPECT_GT(mixing[i * 36 + i], mixing[i * 36 + 35 - i]);
}

TEST(ResizeMixing, RefusesLayoutsThatDoNotMatch) {
  const std::vector<double> mixing(16, 1.0);
  const Partition line = Partition::line(4, 1);
  expect_error([&] { resize_mixing(mixing, line, Partition::grid({4, 4}, {2, 2})); }, {"to has 2 axes", "needs 1"});
  expect_error([&] { resize_mixing(mixing, Partition::line(5, 1), line); }, {"mixing has 16 entries", "5"});
  expect_error([&] { resize_mixing({}, Partition::line(0, 1), line); }, {"from has no blocks"});
}

const std::vector<double> kTrained{1, 9, 9, 2, 3, 9, 4, 5, 6};  // 3 x 3; the nines are above the diagonal

TEST(CausalRow, WithinTheTrainedBlocksIsTheMatrix) {
  for (const BeyondTrained beyond :
       {BeyondTrained::error, BeyondTrained::clamp, BeyondTrained::running_mean, BeyondTrained::interpolate}) {
    EXPECT_EQ(causal_row(kTrained, 3, 1, beyond), (std::vector<double>{2, 3}));
    EXPECT_EQ(extend_causal_mixing(kTrained, 3, 2, beyond), (std::vector<double>{1, 0, 2, 3}));
  }
}

TEST(CausalRow, BeyondTheTrainedBlocksFollowsThePolicy) {
  expect_error([&] { causal_row(kTrained, 3, 3, BeyondTrained::error); }, {"block is 3", "3 blocks", "clamp"});
  EXPECT_EQ(causal_row(kTrained, 3, 3, BeyondTrained::clamp), (std::vector<double>{4, 4, 5, 6}));
  EXPECT_EQ(causal_row(kTrained, 3, 5, BeyondTrained::clamp), (std::vector<double>{4, 4, 4, 4, 5, 6}));
  EXPECT_EQ(causal_row(kTrained, 3, 3, BeyondTrained::running_mean), std::vector<double>(4, 0.25));
  const std::vector<double> stretched = causal_row(kTrained, 3, 5, BeyondTrained::interpolate);
  const double unscaled[] = {4, 4.25, 4.75, 5.25, 5.75, 6};  // sums to 30, the trained row to 15
  for (std::size_t b = 0; b < 6; ++b) EXPECT_NEAR(stretched[b], unscaled[b] / 2, 1e-14);
}

TEST(CausalRow, OneTrainedBlockWorksUnderEveryPolicy) {
  const std::vector<double> one{0.5};
  EXPECT_EQ(causal_row(one, 1, 2, BeyondTrained::clamp), (std::vector<double>{.5, .5, .5}));
  EXPECT_EQ(causal_row(one, 1, 1, BeyondTrained::running_mean), (std::vector<double>{.5, .5}));
  EXPECT_EQ(causal_row(one, 1, 1, BeyondTrained::interpolate), (std::vector<double>{.25, .25}));
}

TEST(ExtendCausalMixing, IsLowerTriangularWithTheRowsOfThePolicy) {
  const std::vector<double> mixing = extend_causal_mixing(kTrained, 3, 5, BeyondTrained::clamp);
  for (std::int64_t i = 0; i < 5; ++i) {
    const std::vector<double> row = causal_row(kTrained, 3, i, BeyondTrained::clamp);
    for (std::int64_t b = 0; b < 5; ++b) EXPECT_EQ(mixing[i * 5 + b], b <= i ? row[b] : 0);
  }
}

TEST(CausalRow, BadArgumentsAreRefusedByName) {
  expect_error([&] { causal_row(kTrained, 4, 0, BeyondTrained::clamp); }, {"mixing has 9 entries", "trained is 4"});
  expect_error([&] { causal_row(kTrained, 3, -1, BeyondTrained::clamp); }, {"block is -1"});
  expect_error([&] { causal_row({}, 0, 0, BeyondTrained::clamp); }, {"trained is 0"});
  expect_error([&] { extend_causal_mixing(kTrained, 3, -1, BeyondTrained::clamp); }, {"blocks is -1"});
}

}  // namespace
}  // namespace mhla
