// Noise prediction and rectified flow behind one interface.
#include "diffusion/process.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "diffusion/flow.hpp"
#include "diffusion/gaussian.hpp"

namespace mhla::diffusion {
namespace {

class NoiseProcess : public Process {
 public:
  NoiseProcess(Schedule schedule, torch::Device device)
      : gaussian_(std::move(schedule), device),
        times_(torch::tensor(gaussian_.schedule().times, torch::kInt64).to(device)) {}

  [[nodiscard]] std::int64_t steps() const override { return gaussian_.schedule().steps(); }
  [[nodiscard]] double time(std::int64_t step) const override {
    return static_cast<double>(gaussian_.schedule().times[static_cast<std::size_t>(step)]);
  }
  [[nodiscard]] Prediction prediction() const override { return Prediction::noise; }
  [[nodiscard]] const Schedule* schedule() const override { return &gaussian_.schedule(); }
  [[nodiscard]] Levels levels(std::int64_t count) const override { return noise_levels(gaussian_.schedule(), count); }
  [[nodiscard]] torch::Tensor drawn_steps(std::int64_t count, const torch::Generator& random,
                                          torch::Device device) const override {
    return torch::randint(0, steps(), {count}, random, torch::TensorOptions(torch::kInt64).device(device));
  }
  [[nodiscard]] torch::Tensor times(const torch::Tensor& step) const override {
    return times_.to(step.device()).index_select(0, step);
  }
  [[nodiscard]] torch::Tensor noised(const torch::Tensor& x_0, const torch::Tensor& step,
                                     const torch::Tensor& noise) const override {
    return gaussian_.noised(x_0, step, noise);
  }
  [[nodiscard]] torch::Tensor target(const torch::Tensor& /*x_0*/, const torch::Tensor& noise) const override {
    return noise;
  }
  [[nodiscard]] torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& x_0, const torch::Tensor& x_t,
                                   const torch::Tensor& step, const torch::Tensor& noise) const override {
    return gaussian_.loss(output, x_0, x_t, step, noise).total;
  }

 private:
  Gaussian gaussian_;
  torch::Tensor times_;
};

class FlowProcess : public Process {
 public:
  FlowProcess(std::int64_t steps, torch::Device device) : flow_(steps, kShift, device) {}

  [[nodiscard]] std::int64_t steps() const override { return flow_.steps(); }
  [[nodiscard]] double time(std::int64_t step) const override { return flow_.time(step); }
  [[nodiscard]] Prediction prediction() const override { return Prediction::velocity; }
  [[nodiscard]] Levels levels(std::int64_t count) const override { return flow_levels(count, kShift); }
  [[nodiscard]] torch::Tensor drawn_steps(std::int64_t count, const torch::Generator& random,
                                          torch::Device device) const override {
    return flow_.steps_of(torch::randn({count}, random, torch::TensorOptions(torch::kFloat64).device(device)));
  }
  [[nodiscard]] torch::Tensor times(const torch::Tensor& step) const override { return flow_.times(step); }
  [[nodiscard]] torch::Tensor noised(const torch::Tensor& x_0, const torch::Tensor& step,
                                     const torch::Tensor& noise) const override {
    return flow_.noised(x_0, step, noise);
  }
  [[nodiscard]] torch::Tensor target(const torch::Tensor& x_0, const torch::Tensor& noise) const override {
    return noise - x_0;
  }
  [[nodiscard]] torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& x_0, const torch::Tensor& /*x_t*/,
                                   const torch::Tensor& /*step*/, const torch::Tensor& noise) const override {
    return (output.narrow(1, 0, x_0.size(1)) - target(x_0, noise)).square().flatten(1).mean(1);
  }

 private:
  static constexpr double kShift = 1.0;
  Flow flow_;
};

}  // namespace

std::shared_ptr<const Process> make_process(std::string_view name, std::int64_t steps, torch::Device device) {
  if (std::ranges::find(kProcesses, name) == kProcesses.end())
    throw std::invalid_argument(
        fmt::format("the noise process is \"{}\"; it may be {}", name, fmt::join(kProcesses, ", ")));
  if (name == "flow") return std::make_shared<FlowProcess>(steps, device);
  return make_process(parse_schedule(name, steps), device);
}

std::shared_ptr<const Process> make_process(Schedule schedule, torch::Device device) {
  return std::make_shared<NoiseProcess>(std::move(schedule), device);
}

}  // namespace mhla::diffusion
