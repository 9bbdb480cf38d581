// From noise and the states of a prompt to the frames of a video.
#pragma once

#include <torch/torch.h>

#include <functional>

#include "diffusion/guidance.hpp"
#include "diffusion/solver.hpp"
#include "models/wan/wan.hpp"
#include "models/wan_vae/wan_vae.hpp"

namespace mhla::tasks {

struct VideoSampling {
  diffusion::Method method = diffusion::Method::dpmpp_2m;
  std::int64_t steps = 50;
  double shift = 3.0;
  diffusion::Guidance guidance{.scale = 3.0};
  bool pair_in_one_batch = true;  // with and without the prompt; else one after the other, with less memory
};

// After each step: how many are done, and the latents.
using AfterVideoStep = std::function<void(std::int64_t done, const at::Tensor& latents)>;

// The latents of one video, [1, channels, frames, height, width], from noise of that shape. prompt, negative: states of
// the text encoder, [tokens, width]; their keys and values are made once for all steps.
at::Tensor sampled_video(models::Wan& model, const at::Tensor& noise, const at::Tensor& prompt,
                         const at::Tensor& negative, const VideoSampling& sampling, const AfterVideoStep& after = {});

// Frames of the video, [1, frames, 3, height, width] with values from 0 to 1, in order and as they are decoded: the
// first alone, then those of one latent frame at a time.
using FrameSink = std::function<void(const at::Tensor& frames)>;
void decode_video(models::WanVae& autoencoder, const at::Tensor& latents, std::int64_t tile, const FrameSink& sink);

}  // namespace mhla::tasks
