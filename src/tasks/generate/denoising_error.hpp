// Held-out denoising error of a generator: how far what it predicts is from the noise that was added, or from the
// velocity of a flow.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "diffusion/process.hpp"
#include "models/base/generator.hpp"

namespace mhla::tasks {

// Mean square errors, over all pictures and over those with little noise: the first 3 tenths of the times.
struct DenoisingError {
  double all = 0, early = 0;
  std::int64_t pictures = 0, early_pictures = 0;

  DenoisingError& operator+=(const DenoisingError& other);  // means over the pictures of both
};

// The step that picture `number` is noised to: steps of consecutive pictures are spread evenly over the schedule.
std::int64_t denoising_step(std::uint64_t seed, std::int64_t number, std::int64_t steps);

// x_0: [B, C, H, W], labels: int64 [B], both on the generator's device; they are pictures first, first + 1, ... of all
// that are looked at. Noise and step of a picture depend on (seed, its number) alone, so that a sum over batches does
// not depend on the batches. The generator is in evaluation mode.
DenoisingError denoising_error(models::Generator& generator, const diffusion::Process& process, const at::Tensor& x_0,
                               const at::Tensor& labels, std::uint64_t seed, std::int64_t first);

}  // namespace mhla::tasks
