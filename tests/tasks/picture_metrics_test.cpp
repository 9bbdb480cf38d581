// Distances between sets of features: closed forms, identities, and numbers computed with NumPy.
#include <gtest/gtest.h>

#include <cmath>

#include "support/expect_error.hpp"
#include "tasks/generate/frechet_distance.hpp"
#include "tasks/generate/precision_recall.hpp"

namespace mhla::tasks {
namespace {

const auto kDouble = at::TensorOptions(at::kDouble);

at::Tensor normal_points(std::int64_t n, std::int64_t features, std::uint64_t seed) {
  torch::manual_seed(seed);
  return torch::randn({n, features}, kDouble);
}

TEST(FrechetDistance, OfGaussiansThatShareTheirAxesIsTheSumOverTheAxes) {
  const at::Tensor rotation = std::get<0>(torch::linalg_qr(normal_points(4, 4, 1)));
  const at::Tensor a = torch::tensor({4.0, 1.0, 0.25, 0.0}, kDouble), b = torch::tensor({1.0, 9.0, 0.25, 2.0}, kDouble);
  const auto covariance = [&](const at::Tensor& axes) { return rotation.mm(axes.diag()).mm(rotation.t()); };
  const at::Tensor shift = torch::tensor({1.0, -2.0, 0.0, 0.5}, kDouble);
  const double expected = 1.0 + 4.0 + 0.25 + (a.sqrt() - b.sqrt()).square().sum().item<double>();
  EXPECT_NEAR(frechet_distance({shift, covariance(a)}, {torch::zeros({4}, kDouble), covariance(b)}), expected, 1e-12);
}

// tr P^(1/2) = sqrt(tr P + 2 sqrt(det P)) for two by two matrices.
TEST(FrechetDistance, OfGaussiansWithDifferentAxesIsTheClosedForm) {
  const at::Tensor a = torch::tensor({{2.0, 0.7}, {0.7, 1.0}}, kDouble),
                   b = torch::tensor({{0.5, -0.3}, {-0.3, 3.0}}, kDouble);
  const at::Tensor product = a.mm(b), zero = torch::zeros({2}, kDouble);
  const double root = std::sqrt(product.trace().item<double>() + 2.0 * std::sqrt(torch::det(product).item<double>()));
  EXPECT_NEAR(frechet_distance({zero, a}, {zero, b}), 2.0 + 1.0 + 0.5 + 3.0 - 2.0 * root, 1e-12);
}

TEST(FrechetDistance, OfASetToItselfIsZeroEvenWithFewerPointsThanFeatures) {
  for (const std::int64_t n : {2, 10, 200}) {
    const FeatureMoments moments = feature_moments(100.0 * normal_points(n, 20, 2));
    EXPECT_NEAR(frechet_distance(moments, moments) / moments.covariance.trace().item<double>(), 0.0, 1e-12) << n;
  }
}

TEST(FrechetDistance, NeedsTwoPointsAndEqualNumbersOfFeatures) {
  expect_error([] { feature_moments(torch::zeros({1, 3})); }, {"1 pictures", "at least 2"});
  expect_error([] { frechet_distance(feature_moments(torch::zeros({2, 3})), feature_moments(torch::zeros({2, 4}))); },
               {"3 and 4"});
}

TEST(PrecisionRecall, OfASetToItselfIsOneAlsoWithEqualPoints) {
  const at::Tensor points = normal_points(30, 5, 3);
  for (const at::Tensor& set : {points, points.repeat({5, 1}), torch::zeros({6, 5}, kDouble)}) {
    const PrecisionRecall found = precision_recall(set, set);
    EXPECT_EQ(found.precision, 1.0);
    EXPECT_EQ(found.recall, 1.0);
  }
}

TEST(PrecisionRecall, OfDistantSetsIsZero) {
  const PrecisionRecall found = precision_recall(normal_points(30, 5, 3), normal_points(20, 5, 4) + 1000.0);
  EXPECT_EQ(found.precision, 0.0);
  EXPECT_EQ(found.recall, 0.0);
}

// The real points reach from -3 to 6, the generated ones from -15 to 18.
TEST(PrecisionRecall, OnALineIsWhatOneCounts) {
  const auto column = [](std::vector<double> values) { return torch::tensor(values, kDouble).unsqueeze(1); };
  const PrecisionRecall found = precision_recall(column({0, 1, 2, 3}), column({-4, -2.5, 5.5, 7}));
  EXPECT_EQ(found.precision, 0.5);
  EXPECT_EQ(found.recall, 1.0);
}

TEST(PrecisionRecall, DoesNotDependOnTheBlocks) {
  const at::Tensor real = normal_points(50, 4, 5).to(at::kFloat), drawn = 0.7 * normal_points(37, 4, 6).to(at::kFloat);
  const PrecisionRecall whole = precision_recall(real, drawn);
  EXPECT_GT(whole.precision, 0.5);
  EXPECT_LT(whole.recall, 1.0);
  for (const std::int64_t block : {1, 7, 50}) {
    const PrecisionRecall found = precision_recall(real, drawn, block);
    EXPECT_EQ(found.precision, whole.precision) << block;
    EXPECT_EQ(found.recall, whole.recall) << block;
  }
}

TEST(PrecisionRecall, NeedsMorePointsThanNeighbours) {
  expect_error([] { precision_recall(torch::zeros({9, 2}), torch::zeros({3, 2})); }, {"3 pictures", "at least 4"});
}

// Computed in NumPy: np.cov, the eigenvalues of the plain product of covariances, and distances by broadcasting.
TEST(PictureMetrics, AreThoseOfNumPy) {
  const auto points = [](std::int64_t n, double phase) {
    const at::Tensor i = torch::arange(n, kDouble).unsqueeze(1), j = torch::arange(6, kDouble);
    return torch::sin(phase + 0.7 * i * (j + 1.0) + 0.3 * j) * (j + 1.0) + 0.1 * phase;
  };
  const at::Tensor real = points(40, 0.5);
  const auto expect = [&](const at::Tensor& drawn, double frechet, double precision, double recall) {
    EXPECT_NEAR(frechet_distance(feature_moments(real), feature_moments(drawn)), frechet, 1e-9);
    const PrecisionRecall found = precision_recall(real, drawn);
    EXPECT_NEAR(found.precision, precision, 1e-12);
    EXPECT_NEAR(found.recall, recall, 1e-12);
  };
  expect(0.8 * points(25, 0.8), 3.492047711004716, 0.56, 1.0);
  expect(points(25, 1.6), 32.176027145213176, 0.0, 0.625);
}

}  // namespace
}  // namespace mhla::tasks
