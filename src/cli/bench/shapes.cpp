// The table of benchmark shapes.
#include "cli/bench/shapes.hpp"

#include <fmt/format.h>

#include <cmath>

#include "cli/commands.hpp"
#include "mhla/mixing.hpp"

namespace mhla::cli::bench {
namespace {

constexpr double kFeatureEps = 1e-6;

Problem bidirectional(std::int64_t batch, std::int64_t heads, std::int64_t dim, const Partition& partition,
                      Normalizer normalizer) {
  Problem problem;
  problem.batch = batch;
  problem.heads = problem.kv_heads = heads;
  problem.key_dim = problem.value_dim = dim;
  problem.partition = partition;
  problem.mixing_blocks = partition.blocks();
  problem.options.normalizer = normalizer;
  problem.options.feature_eps = kFeatureEps;
  return problem;
}

Problem causal(std::int64_t heads, std::int64_t tokens, std::int64_t key_dim, std::int64_t value_dim,
               std::int64_t block) {
  Problem problem = bidirectional(1, heads, key_dim, Partition::line(tokens, block), Normalizer::none);
  problem.value_dim = value_dim;
  problem.options.masking = Masking::token_causal;
  problem.options.feature_map = FeatureMap::identity;  // made before the rotary step
  problem.options.feature_eps = 0.0;
  problem.options.scale = 1.0 / std::sqrt(static_cast<double>(key_dim));
  return problem;
}

std::vector<Shape> make_shapes() {
  using enum Normalizer;
  using enum TokenOrder;
  return {
      {"video", "31,500 latent tokens of a video",
       bidirectional(1, 12, 128, Partition::grid({21, 30, 50}, {3, 5, 10}), none), raster, 1, 12},
      {"256px", "diffusion transformer at 256 px", bidirectional(4, 6, 64, Partition::grid({16, 16}, {4, 4}), paper),
       block, 256, 6},
      {"512px", "diffusion transformer at 512 px", bidirectional(2, 6, 64, Partition::grid({32, 32}, {4, 4}), paper),
       block, 64, 6},
      {"1024px", "diffusion transformer at 1024 px", bidirectional(1, 6, 64, Partition::grid({64, 64}, {4, 4}), paper),
       block, 16, 6},
      {"sana", "text-to-image at 1024 px, narrow heads",
       bidirectional(1, 36, 32, Partition::grid({32, 32}, {4, 4}), paper), block, 8, 36},
      {"long", "131,072 tokens", bidirectional(1, 2, 128, Partition::line(131072, 512), none), raster, 1, 12},
      {"causal", "language model, 2,048 tokens in blocks of 64", causal(4, 2048, 128, 256, 64), raster, 16, 4},
      {"tiny", "64 tokens, to see that everything works",
       bidirectional(1, 2, 16, Partition::grid({8, 8}, {2, 2}), paper), block, 1, 2},
      {"tiny-causal", "64 causal tokens", causal(2, 64, 16, 24, 16), raster, 1, 2},
  };
}

}  // namespace

torch::Tensor Shape::mixing() const {
  return to_matrix(mixing_init(problem.partition, causal() ? MixingInit::running_mean : MixingInit::paper));
}

std::string Shape::sizes() const {
  const Problem& p = problem;
  const std::string dim =
      p.key_dim == p.value_dim ? fmt::format("{}", p.key_dim) : fmt::format("{}/{}", p.key_dim, p.value_dim);
  return fmt::format("({}, {}, {}, {}, {})", p.batch, p.heads, p.partition.tokens(), dim, p.partition.blocks());
}

Shape Shape::on_gpu() const {
  Shape shape = *this;
  shape.problem.device = Device::cuda;
  shape.problem.batch = gpu_batch;
  shape.problem.heads = shape.problem.kv_heads = gpu_heads;
  return shape;
}

const std::vector<Shape>& all_shapes() {
  static const std::vector<Shape> shapes = make_shapes();
  return shapes;
}

const Shape& shape_named(const std::string& name) {
  std::string names;
  for (const Shape& shape : all_shapes()) {
    if (shape.name == name) return shape;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", shape.name);
  }
  throw UsageError(fmt::format("--shape is \"{}\"; it may be: {}", name, names));
}

Shape sweep_shape(std::int64_t tokens) {
  const auto blocks = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(tokens))));
  return {fmt::format("n={}", tokens), "",
          bidirectional(1, 1, 64, Partition::line(tokens, tokens / blocks), Normalizer::none), TokenOrder::raster};
}

std::vector<std::int64_t> sweep_tokens(std::int64_t largest) {
  std::vector<std::int64_t> counts;
  for (std::int64_t n = 256; n <= largest; n *= 4) counts.push_back(n);
  return counts;
}

}  // namespace mhla::cli::bench
