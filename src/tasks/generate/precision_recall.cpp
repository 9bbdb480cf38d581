// Manifolds of balls.
#include "tasks/generate/precision_recall.hpp"

#include <fmt/format.h>

#include <vector>

#include "mhla/types.hpp"

namespace mhla::tasks {
namespace {

// Differences are squared one by one: the expansion by products would not find equal points at distance zero.
at::Tensor distances(const at::Tensor& from, const at::Tensor& to) {
  constexpr std::int64_t kWithoutProducts = 2;
  return at::cdist(from, to, 2.0, kWithoutProducts);
}

// Of every point, the distance to its k-th neighbour in the set; the nearest of all is the point itself.
at::Tensor radii(const at::Tensor& points, std::int64_t block) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& some : points.split(block))
    parts.push_back(std::get<0>(distances(some, points).kthvalue(kNeighbours + 1, 1)));
  return at::cat(parts);
}

// How many of `candidates` lie in a ball around one of `points`.
double share_inside(const at::Tensor& candidates, const at::Tensor& points, const at::Tensor& radius,
                    std::int64_t block) {
  std::int64_t inside = 0;
  for (const at::Tensor& some : candidates.split(block))
    inside += distances(some, points).le(radius).any(1).sum().item<std::int64_t>();
  return static_cast<double>(inside) / static_cast<double>(candidates.size(0));
}

}  // namespace

PrecisionRecall precision_recall(const at::Tensor& real, const at::Tensor& generated, std::int64_t block) {
  for (const at::Tensor* points : {&real, &generated})
    if (points->size(0) <= kNeighbours)
      throw Error(fmt::format("{} pictures; precision and recall need at least {}", points->size(0), kNeighbours + 1));
  return {share_inside(generated, real, radii(real, block), block),
          share_inside(real, generated, radii(generated, block), block)};
}

}  // namespace mhla::tasks
