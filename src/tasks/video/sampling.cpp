// Guided sampling of latents, and their decoding.
#include "tasks/video/sampling.hpp"

namespace mhla::tasks {
namespace {

// The guided velocity of one state.
class GuidedVelocity {
 public:
  GuidedVelocity(models::Wan& model, const at::Tensor& prompt, const at::Tensor& negative,
                 const VideoSampling& sampling)
      : model_(model), sampling_(sampling) {
    if (sampling.pair_in_one_batch)
      pair_ = model.text({negative, prompt});
    else
      negative_ = model.text({negative});
    prompt_ = model.text({prompt});
  }

  at::Tensor operator()(const at::Tensor& x, double time, double largest_time) {
    const at::Tensor t = at::full({1}, time, x.options().dtype(at::kDouble));
    const double scale = sampling_.guidance.acts_at(time, largest_time) ? sampling_.guidance.scale : 1.0;
    if (scale == 1.0) return model_.forward(x, t, prompt_);
    at::Tensor without, with;
    if (sampling_.pair_in_one_batch) {
      const auto both = model_.forward(at::cat({x, x}), at::cat({t, t}), pair_).chunk(2);
      without = both[0], with = both[1];
    } else {
      without = model_.forward(x, t, negative_), with = model_.forward(x, t, prompt_);
    }
    return without + scale * (with - without);
  }

 private:
  models::Wan& model_;
  const VideoSampling& sampling_;
  models::WanText prompt_, negative_, pair_;
};

// diffusers' levels for each method.
diffusion::Levels levels_of(const VideoSampling& sampling) {
  const bool euler = sampling.method == diffusion::Method::first_order;
  return diffusion::flow_levels(sampling.steps, sampling.shift,
                                euler ? diffusion::FlowSpacing::to_shifted_end : diffusion::FlowSpacing::whole_times);
}

}  // namespace

at::Tensor sampled_video(models::Wan& model, const at::Tensor& noise, const at::Tensor& prompt,
                         const at::Tensor& negative, const VideoSampling& sampling, const AfterVideoStep& after) {
  sampling.guidance.check();
  const torch::NoGradGuard no_gradient;
  diffusion::Solver solver(sampling.method, levels_of(sampling));
  GuidedVelocity velocity(model, prompt, negative, sampling);
  const double largest_time = solver.levels().front().time;
  at::Tensor x = noise;
  for (std::int64_t step = 0; step < solver.steps(); ++step) {
    const diffusion::Level& level = solver.levels()[static_cast<std::size_t>(step)];
    const at::Tensor v = velocity(x, level.time, largest_time);
    x = solver.step(step, x, diffusion::predicted_data(v, x, level, diffusion::Prediction::velocity));
    if (after) after(step + 1, x);
  }
  return x;
}

void decode_video(models::WanVae& autoencoder, const at::Tensor& latents, std::int64_t tile, const FrameSink& sink) {
  const torch::NoGradGuard no_gradient;
  const at::Tensor unscaled = autoencoder.unscaled(latents);
  models::WanVaeStream stream(tile);
  for (std::int64_t i = 0; i < unscaled.size(2); ++i) {
    const at::Tensor frames = autoencoder.decode_next(unscaled.slice(2, i, i + 1), stream);
    sink(((frames.clamp(-1.0, 1.0) + 1.0) / 2.0).transpose(1, 2));
  }
}

}  // namespace mhla::tasks
