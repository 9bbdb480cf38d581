// Initial mixing matrices and their projection back to valid values.
#include "mhla/mixing.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/names.hpp"
#include "core/sizes.hpp"

namespace mhla {
namespace {

constexpr std::array<NameEntry<MixingInit>, 9> kMixingInits{{{MixingInit::paper, "paper"},
                                                             {MixingInit::linear, "linear"},
                                                             {MixingInit::cos, "cos"},
                                                             {MixingInit::exp, "exp"},
                                                             {MixingInit::gaussian, "gaussian"},
                                                             {MixingInit::local, "local"},
                                                             {MixingInit::uniform, "uniform"},
                                                             {MixingInit::running_mean, "running-mean"},
                                                             {MixingInit::constant, "constant"}}};

constexpr std::array<NameEntry<BeyondTrained>, 4> kBeyondTrained{{{BeyondTrained::error, "error"},
                                                                  {BeyondTrained::clamp, "clamp"},
                                                                  {BeyondTrained::running_mean, "running-mean"},
                                                                  {BeyondTrained::interpolate, "interpolate"}}};

struct Square {
  std::size_t side;
  std::vector<double> values;
  double& at(std::size_t row, std::size_t column) { return values[row * side + column]; }
};

Square distances(const Partition& partition) {
  Square d{static_cast<std::size_t>(partition.blocks()), {}};
  std::vector<std::array<double, Partition::kMaxAxes>> centres(d.side);
  for (std::size_t i = 0; i < d.side; ++i) centres[i] = partition.block_centre(static_cast<std::int64_t>(i));
  d.values.resize(d.side * d.side);
  for (std::size_t i = 0; i < d.side; ++i)
    for (std::size_t j = 0; j < d.side; ++j) {
      double squares = 0;
      for (int axis = 0; axis < Partition::kMaxAxes; ++axis)
        squares += (centres[i][axis] - centres[j][axis]) * (centres[i][axis] - centres[j][axis]);
      d.at(i, j) = std::sqrt(squares);
    }
  return d;
}

double largest(std::span<const double> values) { return *std::ranges::max_element(values); }

void divide_by_column_sums(Square& a) {
  for (std::size_t j = 0; j < a.side; ++j) {
    double sum = 0;
    for (std::size_t i = 0; i < a.side; ++i) sum += a.at(i, j);
    for (std::size_t i = 0; i < a.side; ++i) a.at(i, j) /= sum;
  }
}

void check_positive(double value, const char* argument) {
  if (!(value > 0) || !std::isfinite(value))
    throw Error(std::string(argument) + " is " + std::to_string(value) + "; it must be positive and finite");
}

// The initialisers that look at distances; there are at least two blocks.
std::vector<double> by_distance(const Partition& partition, MixingInit init, const MixingInitOptions& options) {
  Square a = distances(partition);
  const double furthest = largest(a.values);
  for (std::size_t i = 0; i < a.side; ++i) {
    const std::span<double> row(&a.at(i, 0), a.side);
    const double furthest_of_row = largest(row);
    double row_sum = 0;
    for (double& value : row) {
      const double d = value;
      if (init == MixingInit::paper) value = 1 - d / furthest_of_row;
      if (init == MixingInit::linear) value = 1 - d / furthest;
      if (init == MixingInit::cos) value = std::cos(d / furthest * std::numbers::pi / 4);
      if (init == MixingInit::exp) value = std::exp(-d / options.sigma);
      if (init == MixingInit::gaussian) value = std::exp(-d * d * 9 / (2 * furthest * furthest));
      if (init == MixingInit::local) value = d <= options.threshold ? 1 : 0;
      row_sum += value;
    }
    if (init == MixingInit::paper)
      for (double& value : row) value /= row_sum;
  }
  if (init != MixingInit::paper && init != MixingInit::gaussian) divide_by_column_sums(a);
  return std::move(a.values);
}

template <typename T>
void project(std::span<T> mixing, std::int64_t blocks, bool normalize_rows, T low, T high) {
  require_size("blocks", blocks, 0, kMostBlocks);
  const auto side = static_cast<std::size_t>(blocks);
  if (mixing.size() != side * side)
    throw Error("mixing has " + std::to_string(mixing.size()) + " entries; " + std::to_string(blocks) +
                " blocks need " + std::to_string(blocks) + " x " + std::to_string(blocks));
  if (!(low <= high))
    throw Error("low is " + std::to_string(low) + "; it may be at most high, " + std::to_string(high));
  for (std::size_t n = 0; n < mixing.size(); ++n)
    if (std::isnan(mixing[n]))
      throw Error("mixing[" + std::to_string(n / side) + ", " + std::to_string(n % side) +
                  "] is NaN; it must be a number");
  for (T& value : mixing) value = std::clamp(value, low, high);
  if (!normalize_rows) return;
  for (std::size_t i = 0; i < side; ++i) {
    const std::span<T> row = mixing.subspan(i * side, side);
    double sum = 0;
    for (const T value : row) sum += static_cast<double>(value);
    if (sum == 0) continue;
    for (T& value : row) value = static_cast<T>(static_cast<double>(value) / sum);
  }
}

}  // namespace

std::string_view name(MixingInit value) { return find_name<MixingInit>(kMixingInits, value); }
std::string_view name(BeyondTrained value) { return find_name<BeyondTrained>(kBeyondTrained, value); }
MixingInit parse_mixing_init(std::string_view text) {
  return parse_name<MixingInit>(kMixingInits, "mixing_init", text);
}
BeyondTrained parse_beyond_trained(std::string_view text) {
  return parse_name<BeyondTrained>(kBeyondTrained, "beyond", text);
}

std::vector<double> mixing_init(const Partition& partition, MixingInit init, const MixingInitOptions& options) {
  require_size("the number of blocks of partition", partition.blocks(), 0, kMostBlocks);
  if (init == MixingInit::exp) check_positive(options.sigma, "sigma");
  if (init == MixingInit::local && !(options.threshold >= 0))
    throw Error("threshold is " + std::to_string(options.threshold) + "; it may not be negative");
  if (init == MixingInit::constant && !std::isfinite(options.value))
    throw Error("value is " + std::to_string(options.value) + "; it must be finite");

  const auto blocks = static_cast<std::size_t>(partition.blocks());
  if (init == MixingInit::constant) return std::vector<double>(blocks * blocks, options.value);
  if (init == MixingInit::uniform) return std::vector<double>(blocks * blocks, 1.0 / static_cast<double>(blocks));
  if (init == MixingInit::running_mean) {
    std::vector<double> mixing(blocks * blocks, 0.0);
    for (std::size_t i = 0; i < blocks; ++i)
      for (std::size_t b = 0; b <= i; ++b) mixing[i * blocks + b] = 1.0 / static_cast<double>(i + 1);
    return mixing;
  }
  if (blocks < 2) return std::vector<double>(blocks, 1.0);
  return by_distance(partition, init, options);
}

void project_mixing(std::span<float> mixing, std::int64_t blocks, bool normalize_rows, float low, float high) {
  project(mixing, blocks, normalize_rows, low, high);
}

void project_mixing(std::span<double> mixing, std::int64_t blocks, bool normalize_rows, double low, double high) {
  project(mixing, blocks, normalize_rows, low, high);
}

}  // namespace mhla
