// Attention matrices and their statistics in double.
#include "analysis/attention_matrix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mhla/types.hpp"

namespace mhla::analysis {
namespace {

constexpr double kFeatureEps = 1e-6;

torch::Tensor phi(const torch::Tensor& x) { return x.to(torch::kFloat64).relu() + kFeatureEps; }

void check_pair(const torch::Tensor& q, const torch::Tensor& k) {
  if (q.dim() != 2 || k.dim() != 2 || q.size(1) != k.size(1))
    throw Error(fmt::format("q and k have {} and {} axes; both must be [N, d] with the same d", q.dim(), k.dim()));
}

torch::Tensor rows_to_one(const torch::Tensor& weights) { return weights / weights.sum(1, true); }

torch::Tensor index_tensor(const std::vector<std::int64_t>& values) { return torch::tensor(values, torch::kInt64); }

}  // namespace

torch::Tensor softmax_matrix(const torch::Tensor& q, const torch::Tensor& k) {
  check_pair(q, k);
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(1)));
  return torch::softmax(torch::matmul(q.to(torch::kFloat64), k.to(torch::kFloat64).t()) * scale, 1);
}

torch::Tensor linear_matrix(const torch::Tensor& q, const torch::Tensor& k) {
  check_pair(q, k);
  return rows_to_one(torch::matmul(phi(q), phi(k).t()));
}

torch::Tensor mhla_matrix(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& mixing,
                          const Partition& partition) {
  check_pair(q, k);
  if (q.size(0) != partition.tokens())
    throw Error(fmt::format("q has {} tokens; the partition has {}", q.size(0), partition.tokens()));
  if (mixing.dim() != 2 || mixing.size(0) != partition.blocks() || mixing.size(1) != partition.blocks())
    throw Error(fmt::format("mixing must be [M, M] with M = {}", partition.blocks()));
  std::vector<std::int64_t> block_of(static_cast<std::size_t>(partition.tokens()));
  for (std::size_t t = 0; t < block_of.size(); ++t) block_of[t] = partition.block_of(static_cast<std::int64_t>(t));
  const torch::Tensor blocks = index_tensor(block_of);
  const torch::Tensor weights = mixing.to(torch::kFloat64).index_select(0, blocks).index_select(1, blocks);
  return rows_to_one(torch::matmul(phi(q), phi(k).t()) * weights);
}

torch::Tensor block_ordered(const torch::Tensor& matrix, const Partition& partition) {
  const torch::Tensor order = index_tensor(partition.block_order());
  return matrix.index_select(0, order).index_select(1, order);
}

MatrixStatistics statistics(const torch::Tensor& matrix) {
  if (!matrix.isfinite().all().item<bool>()) throw Error("the attention matrix holds values that are not finite");
  if (matrix.lt(0.0).any().item<bool>()) throw Error("the attention matrix holds negative weights");
  const auto n = static_cast<double>(matrix.size(0));
  const torch::Tensor singular = torch::linalg_svdvals(matrix);
  MatrixStatistics result;
  const double largest = singular.max().item<double>();
  const double smallest_counted = largest * n * std::numeric_limits<double>::epsilon();
  result.rank = singular.gt(smallest_counted).sum().item<std::int64_t>();
  const torch::Tensor p = singular / singular.sum();
  result.effective_rank = std::exp(-torch::special::xlogy(p, p).sum().item<double>());
  result.entropy = -torch::special::xlogy(matrix, matrix).sum(1).mean().item<double>();
  result.sparsity = matrix.lt(0.1 / n).to(torch::kFloat64).mean().item<double>();
  return result;
}

std::int64_t rank_bound(const Partition& partition, std::int64_t key_dim) {
  std::int64_t bound = 0;
  for (std::int64_t b = 0; b < partition.blocks(); ++b) bound += std::min(partition.block_tokens(b), key_dim);
  return bound;
}

TokenSample sample_tokens(const Partition& partition, std::int64_t dim, std::uint64_t seed) {
  constexpr std::int64_t kWaves = 48;
  constexpr double kWavesAcross = 6.0;
  constexpr double kNoise = 0.35;
  const std::int64_t n = partition.tokens();
  auto generator = at::detail::createCPUGenerator(seed);
  const auto f64 = torch::TensorOptions().dtype(torch::kFloat64);
  const auto normal = [&](std::int64_t rows, std::int64_t columns) {
    return torch::randn({rows, columns}, generator, f64);
  };

  std::vector<torch::Tensor> coordinates;
  std::int64_t stride = n;
  const torch::Tensor index = torch::arange(n, torch::kInt64);
  for (const std::int64_t size : partition.sizes()) {
    stride /= std::max<std::int64_t>(size, 1);
    const torch::Tensor along = index.div(std::max<std::int64_t>(stride, 1), "floor").remainder(size);
    coordinates.push_back(along.to(torch::kFloat64) / static_cast<double>(size));
  }
  const torch::Tensor place = torch::stack(coordinates, 1);
  const torch::Tensor phase = torch::rand({1, kWaves}, generator, f64) * (2.0 * M_PI);
  const torch::Tensor field = torch::cos(torch::matmul(place, normal(place.size(1), kWaves)) * kWavesAcross + phase);
  const torch::Tensor x = torch::matmul(field, normal(kWaves, dim)) / std::sqrt(kWaves / 2.0) + kNoise * normal(n, dim);

  const double spread = 1.0 / std::sqrt(static_cast<double>(dim));
  const torch::Tensor shared = normal(dim, dim);
  const torch::Tensor query_map = (shared + 0.5 * normal(dim, dim)) * spread;
  const torch::Tensor key_map = (shared + 0.5 * normal(dim, dim)) * spread;
  return {torch::matmul(x, query_map), torch::matmul(x, key_map), torch::matmul(x, normal(dim, dim)) * spread};
}

}  // namespace mhla::analysis
