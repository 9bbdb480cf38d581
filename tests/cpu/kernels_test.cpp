// Every instruction set's kernels against plain loops.
#include "cpu/kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/element.hpp"
#include "cpu/feature_map.hpp"
#include "mhla/attention.hpp"

namespace mhla::cpu {
namespace {

template <typename T>
struct Set {
  const char* name;
  const Kernels<T>* table;
};

// The sets this machine can run: the dispatcher's choice and all below it.
template <typename T>
std::vector<Set<T>> instruction_sets() {
  std::vector<Set<T>> sets{{"portable", &portable::table<T>()}};
#if defined(__x86_64__)
  if (cpu_isa() != "portable") sets.push_back({"avx2", &avx2::table<T>()});
  if (cpu_isa() == "avx512") sets.push_back({"avx512", &avx512::table<T>()});
#endif
  return sets;
}

template <typename T>
struct alignas(64) AlignedLine {
  T values[kLine<T>];
};

// 64-byte aligned, random.
template <typename T>
class Buffer {
 public:
  explicit Buffer(std::int64_t count, unsigned seed = 1) : lines_(static_cast<std::size_t>(count / kLine<T> + 2)) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for (auto& line : lines_)
      for (auto& value : line.values) value = static_cast<T>(normal(random));
  }
  T* data() { return lines_.front().values; }
  T& operator[](std::int64_t i) { return data()[i]; }

 private:
  std::vector<AlignedLine<T>> lines_;
};

template <typename T>
constexpr double kTolerance = std::is_same_v<T, float> ? 2e-5 : 1e-13;

template <typename T>
class KernelsOf : public testing::Test {};
using ArithmeticTypes = testing::Types<float, double>;
TYPED_TEST_SUITE(KernelsOf, ArithmeticTypes);

TYPED_TEST(KernelsOf, ProductsAreThoseOfPlainLoops) {
  using T = TypeParam;
  for (const auto& [name, table] : instruction_sets<T>())
    for (const std::int64_t m : {1, 5, 13, 14, 15, 64})
      for (const std::int64_t lines : {1, 2, 3, 7})
        for (const std::int64_t k : {0, 1, 17, 64})
          for (const bool accumulate : {false, true})
            for (const bool rows : {false, true}) {
              const std::int64_t n = lines * kLine<T>, ldb = n + kLine<T>, ldc = n + 2 * kLine<T>, lda = 70;
              Buffer<T> a(64 * kTileStride<T>, 1), b(64 * ldb, 2), c(64 * ldc, 3), expected(64 * ldc, 3);
              for (std::int64_t i = 0; i < m; ++i)
                for (std::int64_t j = 0; j < n; ++j) {
                  double sum = accumulate ? expected[i * ldc + j] : 0;
                  for (std::int64_t s = 0; s < k; ++s)
                    sum += static_cast<double>(rows ? a[i * kTileStride<T> + s] : a[s * lda + i]) * b[s * ldb + j];
                  expected[i * ldc + j] = static_cast<T>(sum);
                }
              const Product<T> product{m, n, k, a.data(), lda, b.data(), ldb, c.data(), ldc, accumulate};
              (rows ? table->product_rows : table->product_k_major)(product);
              for (std::int64_t e = 0; e < 64 * ldc; ++e)
                ASSERT_NEAR(c[e], expected[e], kTolerance<T>)
                    << name << " m" << m << " n" << n << " k" << k << " at " << e;
            }
}

TYPED_TEST(KernelsOf, CausalProductsSumTheStepsOfTheirRow) {
  using T = TypeParam;
  for (const auto& [name, table] : instruction_sets<T>())
    for (const Steps steps : {Steps::growing, Steps::shrinking})
      for (const std::int64_t m : {1, 5, 14, 15, 31})
        for (const std::int64_t lines : {1, 3})
          for (const std::int64_t k : {1, 17, 32})
            for (const bool accumulate : {false, true}) {
              const std::int64_t n = lines * kLine<T>, ld = n + kLine<T>, lda = 70;
              if (steps == Steps::shrinking && k < m) continue;  // rows past the last step have nothing to sum
              Buffer<T> a(64 * lda, 1), b(64 * ld, 2), c(64 * ld, 3), expected(64 * ld, 3);
              for (std::int64_t i = 0; i < m; ++i)
                for (std::int64_t j = 0; j < n; ++j) {
                  double sum = accumulate ? expected[i * ld + j] : 0;
                  const std::int64_t first = steps == Steps::shrinking ? i : 0;
                  const std::int64_t last = steps == Steps::growing ? k + i : k;
                  for (std::int64_t s = first; s < last; ++s)
                    sum += static_cast<double>(a[s * lda + i]) * b[s * ld + j];
                  expected[i * ld + j] = static_cast<T>(sum);
                }
              table->product_k_major({m, n, k, a.data(), lda, b.data(), ld, c.data(), ld, accumulate, steps});
              for (std::int64_t e = 0; e < 64 * ld; ++e)
                ASSERT_NEAR(c[e], expected[e], kTolerance<T>)
                    << name << " m" << m << " n" << n << " k" << k << " at " << e;
            }
}

TYPED_TEST(KernelsOf, GramSumsEveryPairOfRows) {
  using T = TypeParam;
  for (const auto& [name, table] : instruction_sets<T>())
    for (const std::int64_t rows : {1, 4, 6})
      for (const std::int64_t columns : {1, 5, 11}) {
        const std::int64_t n = 3 * kLine<T>, ld = 4 * kLine<T>;
        Buffer<T> x(rows * ld, 1), y(columns * ld, 2), acc(rows * columns * kLine<T>);
        std::fill_n(acc.data(), rows * columns * kLine<T>, T(0));
        table->gram(rows, columns, n, x.data(), ld, y.data(), ld, acc.data());
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t b = 0; b < columns; ++b) {
            double expected = 0, sum = 0;
            for (std::int64_t e = 0; e < n; ++e) expected += static_cast<double>(x[i * ld + e]) * y[b * ld + e];
            for (std::int64_t lane = 0; lane < kLine<T>; ++lane) sum += acc[(i * columns + b) * kLine<T> + lane];
            ASSERT_NEAR(sum, expected, kTolerance<T>) << name;
          }
      }
}

TYPED_TEST(KernelsOf, TransposeSwapsRowsAndColumns) {
  using T = TypeParam;
  for (const auto& [name, table] : instruction_sets<T>())
    for (const std::int64_t rows : {1, 16, 33})
      for (const std::int64_t columns : {3, 16, 40}) {
        Buffer<T> in(rows * 48, 1), out(columns * 48, 2);
        table->transpose(rows, columns, in.data(), 48, out.data(), 48);
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < columns; ++c) ASSERT_EQ(out[c * 48 + r], in[r * 48 + c]) << name;
      }
}

TYPED_TEST(KernelsOf, LoadAppliesTheFeatureMapAndPadsWithZeros) {
  using T = TypeParam;
  const std::int64_t width = 21, stride = 23, rows = 3;
  for (const auto& [name, table] : instruction_sets<T>())
    for (const auto map :
         {FeatureMap::identity, FeatureMap::relu, FeatureMap::elu_plus_one, FeatureMap::exp, FeatureMap::squared_relu})
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
        if ((dtype == DType::f64) != std::is_same_v<T, double>) continue;
        with_element_type(dtype, [&](auto tag) {
          using Element = typename decltype(tag)::type;
          std::vector<Element> x(rows * stride), back(rows * stride);
          std::mt19937 random(5);
          std::normal_distribution<double> normal(0.0, 3.0);
          for (auto& e : x) e = static_cast<Element>(normal(random));
          Buffer<T> tile(rows * kTileStride<T>);
          table->load({dtype, rows, stride, width}, {map, 0.5, 0.25}, x.data(), tile.data());
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < padded<T>(width); ++c) {
              const double expected = c < width ? 0.5 * (phi(map, static_cast<double>(x[r * stride + c])) + 0.25) : 0.0;
              ASSERT_NEAR(tile[r * kTileStride<T> + c], expected, kTolerance<T> * (1 + std::abs(expected))) << name;
            }
          std::vector<T> factor(rows, T(2));
          table->store({dtype, rows, stride, width}, tile.data(), factor.data(), back.data());
          table->store_gradient({dtype, rows, stride, width}, {map, 0.5, 0.25}, tile.data(), x.data(), stride,
                                x.data());
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < width; ++c)
              ASSERT_EQ(static_cast<double>(back[r * stride + c]),
                        static_cast<double>(static_cast<Element>(T(2) * tile[r * kTileStride<T> + c])))
                  << name;
        });
      }
}

TYPED_TEST(KernelsOf, StoreGradientMultipliesByTheDerivative) {
  using T = TypeParam;
  const DType dtype = std::is_same_v<T, double> ? DType::f64 : DType::f32;
  for (const auto& [name, table] : instruction_sets<T>())
    for (const auto map : {FeatureMap::identity, FeatureMap::relu, FeatureMap::elu_plus_one, FeatureMap::exp,
                           FeatureMap::squared_relu}) {
      const std::int64_t width = 37;
      Buffer<T> tile(kTileStride<T>, 1), x(width, 2), out(width, 3);
      table->store_gradient({dtype, 1, width, width}, {map, 0.5, 0.0}, tile.data(), x.data(), width, out.data());
      for (std::int64_t c = 0; c < width; ++c) {
        const double expected = tile[c] * 0.5 * phi_derivative(map, static_cast<double>(x[c]));
        ASSERT_NEAR(out[c], expected, kTolerance<T> * (1 + std::abs(expected))) << name;
      }
    }
}

TEST(Exponential, HoldsItsAccuracyOverTheWholeRangeOnEveryInstructionSet) {
  for (const auto& [name, table] : instruction_sets<float>()) {
    Buffer<float> tile(kTileStride<float>);
    const auto exponential = [&](float x) {
      table->load({DType::f32, 1, 1, 1}, {FeatureMap::exp, 1.0, 0.0}, &x, tile.data());
      return tile[0];
    };
    for (float x = -87.0F; x < 88.5F; x += 0.0371F)
      ASSERT_NEAR(exponential(x) / std::exp(static_cast<double>(x)), 1.0, 4e-7) << name << " " << x;
    EXPECT_EQ(exponential(200.0F), INFINITY) << name;
    EXPECT_EQ(exponential(INFINITY), INFINITY) << name;
    EXPECT_EQ(exponential(-INFINITY), 0.0F) << name;
    EXPECT_TRUE(std::isnan(exponential(std::nanf("")))) << name;
    EXPECT_NEAR(exponential(-100.0F), std::exp(-100.0), 2e-45) << name;
  }
}

}  // namespace
}  // namespace mhla::cpu
