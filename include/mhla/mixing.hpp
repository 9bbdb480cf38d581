// The mixing matrix Mc: how it starts, how it is kept valid, and how it is carried to other block layouts.
// All matrices are dense, row-major [M, M]; row = query block, column = source block.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "mhla/partition.hpp"

namespace mhla {

enum class MixingInit {
  paper,         // 1 - d / (largest d of the row), rows sum to one
  linear,        // the authors' code: 1 - d / (largest d), columns sum to one
  cos,           // cos(pi/4 d / (largest d)), columns sum to one
  exp,           // exp(-d / sigma), columns sum to one
  gaussian,      // exp(-d^2 / (2 s^2)) with s = (largest d) / 3, not normalised
  local,         // 1 where d <= threshold, columns sum to one
  uniform,       // 1 / M
  running_mean,  // 1 / (i + 1) on and below the diagonal, 0 above
  constant       // one given value
};

struct MixingInitOptions {
  double sigma = 3.0;      // exp
  double threshold = 1.5;  // local
  double value = 1.0;      // constant
};

// How a causal matrix trained for M blocks answers for block i >= M.
enum class BeyondTrained {
  error,
  clamp,         // weights by distance: row M-1 shifted; everything further back weighs m[M-1, 0]
  running_mean,  // 1 / (i + 1)
  interpolate    // row M-1 stretched to i + 1 entries, its sum kept
};

std::string_view name(MixingInit value);
std::string_view name(BeyondTrained value);
MixingInit parse_mixing_init(std::string_view text);
BeyondTrained parse_beyond_trained(std::string_view text);

// Distances are Euclidean between block centres in units of blocks.
std::vector<double> mixing_init(const Partition& partition, MixingInit init, const MixingInitOptions& options = {});

// Clamps every entry to [low, high]; with `normalize_rows` each row is then divided by its sum (rows of zeros stay).
void project_mixing(std::span<float> mixing, std::int64_t blocks, bool normalize_rows = false, float low = 0.0F,
                    float high = 1.0F);
void project_mixing(std::span<double> mixing, std::int64_t blocks, bool normalize_rows = false, double low = 0.0,
                    double high = 1.0);

// A trained matrix for another layout with the same number of axes: entry (i, b) is read at the query block's relative
// position in the layout and the source block's, by multilinear interpolation. Row sums are those of the interpolated
// rows.
std::vector<double> resize_mixing(std::span<const double> mixing, const Partition& from, const Partition& to);

// Row `block` (block + 1 entries) of a causal matrix trained for `trained` blocks.
std::vector<double> causal_row(std::span<const double> mixing, std::int64_t trained, std::int64_t block,
                               BeyondTrained beyond);

// Leading `blocks` x `blocks` corner of a causal matrix, extended by `beyond` where it was trained for fewer.
std::vector<double> extend_causal_mixing(std::span<const double> mixing, std::int64_t trained, std::int64_t blocks,
                                         BeyondTrained beyond);

}  // namespace mhla
