// Drawing pictures with a generator: from (seed, number of the picture, class) to values in the network's range.
//
// On a CPU every picture is drawn by one thread, several at a time. So its bits depend neither on the other pictures
// nor on the number of threads. On a GPU pictures are drawn in batches.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "diffusion/guidance.hpp"
#include "diffusion/process.hpp"
#include "models/base/generator.hpp"

namespace mhla::tasks {

// ddpm and ddim are for predicted noise, euler for flows, the others for both.
enum class Sampler : std::uint8_t { ddpm, ddim, euler, dpmpp, unipc };
inline constexpr std::array<std::string_view, 5> kSamplers = {"ddpm", "ddim", "euler", "dpm++", "unipc"};
Sampler parse_sampler(std::string_view name);  // one of kSamplers
std::string_view name_of(Sampler sampler);
Sampler usual_sampler(const diffusion::Process& process);  // ddim or euler

struct SampleRequest {
  std::vector<std::int64_t> classes;  // of each picture
  std::vector<std::int64_t> size;     // height and width; empty: the generator's own
  Sampler sampler = Sampler::ddim;
  std::int64_t steps = 50;
  diffusion::Guidance guidance;
  std::uint64_t seed = 0;
  std::vector<std::int64_t> numbers;  // of each picture, for its noise; empty: first, first + 1, ...
  std::int64_t first = 0;
  std::int64_t batch = 16;  // pictures drawn together on a GPU
};

// Throws an Error that names what is impossible and what is allowed.
void check(const SampleRequest& request, const models::Generator& generator, const diffusion::Process& process);

struct Drawing {
  std::int64_t picture;  // counted from 0
  std::int64_t step, steps;
  const at::Tensor& x_0;  // the picture as the network sees it now, [C, H, W]
};
// Called after every step of every picture, by one thread at a time.
using Watch = std::function<void(const Drawing&)>;

// [pictures, channels, H, W] in float32 on the CPU.
at::Tensor sample(models::Generator& generator, const diffusion::Process& process, const SampleRequest& request,
                  const Watch& watch = nullptr);

}  // namespace mhla::tasks
