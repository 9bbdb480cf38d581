// Drawing pictures with a generator.
#include "tasks/generate/sampling.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>

#include "diffusion/gaussian.hpp"
#include "diffusion/noise.hpp"
#include "diffusion/solver.hpp"
#include "mhla/types.hpp"
#include "tasks/generate/one_thread.hpp"

namespace mhla::tasks {
namespace {

std::vector<std::int64_t> numbers(const SampleRequest& request, std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> chosen;
  chosen.reserve(static_cast<std::size_t>(end - begin));
  for (std::int64_t i = begin; i < end; ++i)
    chosen.push_back(request.numbers.empty() ? request.first + i : request.numbers[static_cast<std::size_t>(i)]);
  return chosen;
}

diffusion::Method method_of(Sampler sampler) {
  if (sampler == Sampler::dpmpp) return diffusion::Method::dpmpp_2m;
  return sampler == Sampler::unipc ? diffusion::Method::unipc : diffusion::Method::first_order;
}

bool suits(Sampler sampler, const diffusion::Process& process) {
  if (sampler == Sampler::dpmpp || sampler == Sampler::unipc) return true;
  return (sampler == Sampler::euler) == (process.prediction() == diffusion::Prediction::velocity);
}

// Pictures that are drawn together.
class Batch {
 public:
  Batch(models::Generator& generator, const diffusion::Process& process, const SampleRequest& request,
        std::int64_t begin, std::int64_t end)
      : generator_(generator), process_(process), request_(request), noise_(request.seed, numbers(request, begin, end)),
        device_(generator.parameters().front().device()) {
    const auto& size = request.size.empty() ? generator.options.size : request.size;
    shape_ = {generator.options.channels, size[0], size[1]};
    const auto classes =
        torch::tensor(std::vector(request.classes.begin() + begin, request.classes.begin() + end), torch::kInt64);
    classes_ = torch::cat({classes, torch::full_like(classes, generator.null_class())}).to(device_);
  }

  // after_step(step, x_0).
  template <typename AfterStep>
  at::Tensor walk(const AfterStep& after_step) {
    return request_.sampler == Sampler::ddpm ? ancestral(after_step) : solved(after_step);
  }

 private:
  template <typename AfterStep>
  at::Tensor ancestral(const AfterStep& after_step) {
    at::Tensor x = fresh_noise();
    const diffusion::Gaussian gaussian(diffusion::respaced(*process_.schedule(), request_.steps));
    for (std::int64_t step = 0; step < request_.steps; ++step) {
      const auto place = request_.steps - 1 - step;
      const at::Tensor output = network(x, static_cast<double>(gaussian.schedule().times[place]));
      const auto t = torch::full({x.size(0)}, place, torch::TensorOptions(device_).dtype(torch::kInt64));
      after_step(step, gaussian.reverse(output, x, t).x_0);
      x = gaussian.ancestral_step(output, x, t, fresh_noise());
    }
    return x;
  }

  template <typename AfterStep>
  at::Tensor solved(const AfterStep& after_step) {
    at::Tensor x = fresh_noise();
    diffusion::Solver solver(method_of(request_.sampler), process_.levels(request_.steps));
    for (std::int64_t step = 0; step < request_.steps; ++step) {
      const diffusion::Level& level = solver.levels()[static_cast<std::size_t>(step)];
      const at::Tensor output = network(x, level.time).narrow(1, 0, x.size(1));
      const at::Tensor x_0 = diffusion::predicted_data(output, x, level, process_.prediction());
      x = solver.step(step, x, x_0);
      after_step(step, x_0);
    }
    return x;
  }

  at::Tensor fresh_noise() { return noise_.draw(shape_).to(device_); }

  at::Tensor network(const at::Tensor& x, double time) {
    const bool guided = request_.guidance.acts_at(time, process_.largest_time());
    const std::int64_t count = guided ? 2 * x.size(0) : x.size(0);
    const auto t = torch::full({count}, time, x.options());
    if (!guided) return generator_.forward(x, t, classes_.narrow(0, 0, count));
    return generator_.forward_with_cfg(torch::cat({x, x}), t, classes_, request_.guidance.scale)
        .narrow(0, 0, x.size(0));
  }

  models::Generator& generator_;
  const diffusion::Process& process_;
  const SampleRequest& request_;
  diffusion::PictureNoise noise_;
  at::Device device_;
  std::vector<std::int64_t> shape_;
  at::Tensor classes_;  // those asked for, then as many of none
};

}  // namespace

Sampler parse_sampler(std::string_view name) {
  const auto* const place = std::ranges::find(kSamplers, name);
  if (place == kSamplers.end())
    throw Error(fmt::format("sampler is \"{}\"; it may be {}", name, fmt::join(kSamplers, ", ")));
  return static_cast<Sampler>(place - kSamplers.begin());
}

std::string_view name_of(Sampler sampler) { return kSamplers.at(static_cast<std::size_t>(sampler)); }

Sampler usual_sampler(const diffusion::Process& process) {
  return process.prediction() == diffusion::Prediction::velocity ? Sampler::euler : Sampler::ddim;
}

void check(const SampleRequest& request, const models::Generator& generator, const diffusion::Process& process) {
  const std::int64_t classes = generator.options.classes, least = request.sampler == Sampler::ddpm ? 2 : 1;
  if (!suits(request.sampler, process)) {
    const bool flow = process.prediction() == diffusion::Prediction::velocity;
    throw Error(fmt::format("sampler is {}; it may be {}, since the model predicts {}", name_of(request.sampler),
                            flow ? "euler, dpm++ or unipc" : "ddpm, ddim, dpm++ or unipc",
                            flow ? "the velocity of a flow" : "noise"));
  }
  for (const std::int64_t label : request.classes)
    if (label < 0 || label > classes)
      throw Error(fmt::format("class is {}; it may be 0 to {}, or {} for none", label, classes - 1, classes));
  if (request.steps < least || request.steps > process.steps())
    throw Error(fmt::format("steps is {}; it may be {} to {}", request.steps, least, process.steps()));
  if (!request.size.empty() && (request.size.size() != 2 || std::ranges::any_of(request.size, [](std::int64_t side) {
                                  return side < 1 || side > (1 << 16);
                                })))
    throw Error("size must be two numbers from 1 to 65536, height and width");
  const std::int64_t patch = generator.patch();
  if (std::ranges::any_of(request.size, [&](std::int64_t side) { return side % patch != 0; }))
    throw Error(fmt::format("size is {} x {}; height and width must be multiples of the patch, {}", request.size[0],
                            request.size[1], patch));
  if (!request.numbers.empty() && request.numbers.size() != request.classes.size())
    throw Error(fmt::format("numbers has {} entries for {} classes", request.numbers.size(), request.classes.size()));
  if (request.batch < 1) throw Error(fmt::format("batch is {}; it must be at least 1", request.batch));
  try {
    request.guidance.check();
  } catch (const std::invalid_argument& error) {
    throw Error(error.what());
  }
}

at::Tensor sample(models::Generator& generator, const diffusion::Process& process, const SampleRequest& request,
                  const Watch& watch) {
  check(request, generator, process);
  generator.eval();
  const auto count = static_cast<std::int64_t>(request.classes.size());
  std::vector<at::Tensor> parts(static_cast<std::size_t>(count));
  std::mutex one_at_a_time;
  const auto draw = [&](std::int64_t begin, std::int64_t end) {
    const torch::NoGradGuard no_gradient;
    const auto after_step = [&](std::int64_t step, const at::Tensor& x_0) {
      if (!watch) return;
      const std::scoped_lock lock(one_at_a_time);
      for (std::int64_t i = begin; i < end; ++i) watch({i, step + 1, request.steps, x_0[i - begin]});
    };
    const at::Tensor drawn = Batch(generator, process, request, begin, end).walk(after_step).cpu();
    for (std::int64_t i = begin; i < end; ++i) parts[static_cast<std::size_t>(i)] = drawn[i - begin];
  };
  if (generator.parameters().front().is_cpu())
    for_each_on_one_thread(count, [&](std::int64_t i) { draw(i, i + 1); });
  else
    for (std::int64_t begin = 0; begin < count; begin += request.batch)
      draw(begin, std::min(begin + request.batch, count));
  return parts.empty() ? at::empty({0}) : at::stack(parts);
}

}  // namespace mhla::tasks
