// Noise by picture.
#include "diffusion/noise.hpp"

#include <ATen/CPUGeneratorImpl.h>

#include <numeric>

namespace mhla::diffusion {
namespace {

// One step of splitmix64: neighbouring inputs give unrelated outputs.
std::uint64_t scrambled(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

std::vector<std::int64_t> numbers_from(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

}  // namespace

PictureNoise::PictureNoise(std::uint64_t seed, const std::vector<std::int64_t>& numbers) {
  generators_.reserve(numbers.size());
  for (const std::int64_t number : numbers)
    generators_.push_back(
        at::detail::createCPUGenerator(scrambled(scrambled(seed) + static_cast<std::uint64_t>(number))));
}

PictureNoise::PictureNoise(std::uint64_t seed, std::int64_t first, std::int64_t count)
    : PictureNoise(seed, numbers_from(first, count)) {}

torch::Tensor PictureNoise::draw(torch::IntArrayRef shape) {
  std::vector<torch::Tensor> pictures;
  pictures.reserve(generators_.size());
  for (torch::Generator& generator : generators_)
    pictures.push_back(torch::randn(shape, generator, torch::TensorOptions().dtype(torch::kFloat32)));
  return torch::stack(pictures);
}

}  // namespace mhla::diffusion
