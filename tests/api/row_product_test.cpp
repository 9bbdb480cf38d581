// Products of few rows: right, and the same bits in any company.
#include "mhla/row_product.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "mhla/parallel.hpp"
#include "support/expect_error.hpp"

namespace mhla {
namespace {

template <typename T>
std::vector<T> random_row(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = static_cast<T>(normal(random));
  return values;
}

template <typename T>
std::vector<T> product(const RowProduct& p, const T* x, const T* weight, const Parallel& parallel = serial()) {
  std::vector<T> y(static_cast<std::size_t>(p.rows * p.outputs), std::numeric_limits<T>::quiet_NaN());
  row_product(p, {.x = x, .weight = weight, .y = y.data(), .run = {.parallel = &parallel}});
  return y;
}

template <typename T>
void check_product(std::int64_t rows, std::int64_t inputs, std::int64_t outputs) {
  constexpr double kTolerance = std::is_same_v<T, float> ? 1e-5 : 1e-13;
  const DType dtype = std::is_same_v<T, float> ? DType::f32 : DType::f64;
  const auto x = random_row<T>(rows * inputs, 1), weight = random_row<T>(outputs * inputs, 2);
  const RowProduct p{.rows = rows, .inputs = inputs, .outputs = outputs, .dtype = dtype};
  const auto y = product(p, x.data(), weight.data());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < outputs; ++o) {
      double sum = 0.0, size = 0.0;
      for (std::int64_t k = 0; k < inputs; ++k) {
        const double term = static_cast<double>(x[r * inputs + k]) * static_cast<double>(weight[o * inputs + k]);
        sum += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(y[r * outputs + o], sum, kTolerance * size) << rows << " x " << inputs << " x " << outputs;
    }
  EXPECT_EQ(product(p, x.data(), weight.data(), default_parallel()), y);
  for (std::int64_t r = 0; r < rows; ++r) {
    RowProduct one = p;
    one.rows = 1;
    const auto alone = product(one, x.data() + r * inputs, weight.data());
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), y.begin() + r * outputs)) << r;
  }
}

TEST(RowProduct, IsTheInnerProductsWithTheBitsThatARowHasAlone) {
  for (const auto& [rows, inputs, outputs] : std::vector<std::array<std::int64_t, 3>>{
           {1, 1, 1}, {3, 7, 5}, {4, 16, 8}, {5, 100, 33}, {17, 64, 130}, {64, 33, 31}, {2, 300, 2100}, {6, 0, 3}}) {
    check_product<float>(rows, inputs, outputs);
    check_product<double>(rows, inputs, outputs);
  }
}

TEST(RowProduct, ReadsAndWritesNoMoreThanItsTensors) {
  const auto x = random_row<float>(3 * 5, 1), weight = random_row<float>(9 * 5, 2);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> wide_x = x, wide_weight = weight, y(3 * 9 + 4, nan);
  wide_x.insert(wide_x.end(), 16, nan);
  wide_weight.insert(wide_weight.end(), 16, nan);
  row_product({.rows = 3, .inputs = 5, .outputs = 9},
              {.x = wide_x.data(), .weight = wide_weight.data(), .y = y.data()});
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i >= 27) << i;
}

TEST(RowProduct, WhatCannotBeIsRefused) {
  float y = 0.0F;
  expect_error([&] { row_product({.rows = -1}, {}); }, {"rows is -1"});
  expect_error([&] { row_product({.rows = 1, .outputs = 1, .dtype = DType::bf16}, {.y = &y}); }, {"dtype is bf16"});
  expect_error([&] { row_product({.rows = 1, .inputs = 1, .outputs = 1}, {.y = &y}); }, {"x or weight is null"});
  expect_error([&] { row_product({.rows = 1, .outputs = 1}, {}); }, {"y is null"});
}

}  // namespace
}  // namespace mhla
