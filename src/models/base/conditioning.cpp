// Positions and times as waves.
#include "models/base/conditioning.hpp"

#include <cmath>

namespace mhla::models {
namespace {

constexpr double kLongestWave = 10000.0;

// kLongestWave^(-k / count), k = 0 .. count - 1.
at::Tensor frequencies(std::int64_t count, at::Device device = at::kCPU) {
  const auto k = torch::arange(count, at::TensorOptions(torch::kFloat64).device(device));
  return torch::exp(k * (-std::log(kLongestWave) / static_cast<double>(count)));
}

}  // namespace

at::Tensor sine_positions(nn::Grid grid, std::int64_t dim) {
  const at::Tensor omega = frequencies(dim / 4);
  const auto waves = [&](std::int64_t count) {
    const at::Tensor angles = torch::outer(torch::arange(count, torch::kFloat64), omega);
    return torch::cat({angles.sin(), angles.cos()}, 1);  // [count, dim / 2]
  };
  const at::Tensor columns = waves(grid.width).unsqueeze(0).expand({grid.height, -1, -1});
  const at::Tensor rows = waves(grid.height).unsqueeze(1).expand({-1, grid.width, -1});
  return torch::cat({columns, rows}, 2).flatten(0, 1).unsqueeze(0).to(torch::kFloat32);
}

TimeEmbeddingImpl::TimeEmbeddingImpl(std::int64_t dim) : first(2 * kFrequencies, dim), second(dim, dim) {
  register_module("mlp", torch::nn::Sequential(first, torch::nn::SiLU(), second));
}

at::Tensor TimeEmbeddingImpl::forward(const at::Tensor& t) {
  const at::Tensor omega = frequencies(kFrequencies, t.device()).to(at::kFloat);
  const at::Tensor angles = t.to(at::kFloat).unsqueeze(1) * omega;
  const at::Tensor waves = torch::cat({angles.cos(), angles.sin()}, 1).to(first->weight.scalar_type());
  return second->forward(at::silu(first->forward(waves)));
}

}  // namespace mhla::models
