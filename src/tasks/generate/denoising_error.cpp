// Noising, predicting, averaging.
#include "tasks/generate/denoising_error.hpp"

#include <vector>

#include "diffusion/noise.hpp"
#include "mhla/types.hpp"

namespace mhla::tasks {
namespace {

// Multiples of the golden ratio, modulo 1, as a fraction of 2^64.
constexpr std::uint64_t kGoldenRatio = 0x9e3779b97f4a7c15ULL;

}  // namespace

DenoisingError& DenoisingError::operator+=(const DenoisingError& other) {
  const auto add = [](double& mean, std::int64_t& count, double other_mean, std::int64_t other_count) {
    if (other_count == 0) return;
    const auto sum = mean * static_cast<double>(count) + other_mean * static_cast<double>(other_count);
    count += other_count;
    mean = sum / static_cast<double>(count);
  };
  add(all, pictures, other.all, other.pictures);
  add(early, early_pictures, other.early, other.early_pictures);
  return *this;
}

std::int64_t denoising_step(std::uint64_t seed, std::int64_t number, std::int64_t steps) {
  const std::uint64_t share = (seed + static_cast<std::uint64_t>(number)) * kGoldenRatio;
  return static_cast<std::int64_t>(((share >> 32U) * static_cast<std::uint64_t>(steps)) >> 32U);
}

DenoisingError denoising_error(models::Generator& generator, const diffusion::Process& process, const at::Tensor& x_0,
                               const at::Tensor& labels, std::uint64_t seed, std::int64_t first) {
  const at::NoGradGuard no_gradient;
  if (x_0.dim() != 4) throw Error("x_0 has shape " + c10::str(x_0.sizes()) + "; it must be [B, C, H, W]");
  const std::int64_t count = x_0.size(0);
  if (count == 0) return {};
  std::vector<std::int64_t> steps;
  steps.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) steps.push_back(denoising_step(seed, first + i, process.steps()));
  const at::Tensor noise = diffusion::PictureNoise(seed, first, count).draw(x_0.sizes().slice(1)).to(x_0.device());
  const at::Tensor t = torch::tensor(steps, torch::kInt64).to(x_0.device());
  const at::Tensor x_t = process.noised(x_0, t, noise);
  const at::Tensor output = generator.forward(x_t, process.times(t).to(x_t), labels);
  const at::Tensor squares = (output.narrow(1, 0, x_0.size(1)).to(at::kFloat) - process.target(x_0, noise)).square();
  const at::Tensor errors = squares.flatten(1).mean(1).cpu();
  DenoisingError result;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto error = static_cast<double>(errors[i].item<float>());
    const bool early = 10 * steps[static_cast<std::size_t>(i)] < 3 * process.steps();
    result += {error, early ? error : 0.0, 1, early ? 1 : 0};
  }
  return result;
}

}  // namespace mhla::tasks
