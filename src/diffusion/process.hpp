// How pictures become noise, and what a network learns of that: the noise, along a schedule, or the velocity, along a
// rectified flow. Training, sampling and evaluation ask it and know no formula of their own.
#pragma once
#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "diffusion/schedule.hpp"
#include "diffusion/solver.hpp"

namespace mhla::diffusion {

class Process {
 public:
  virtual ~Process() = default;

  [[nodiscard]] virtual std::int64_t steps() const = 0;
  [[nodiscard]] virtual double time(std::int64_t step) const = 0;  // what the network is told
  [[nodiscard]] double largest_time() const { return time(steps() - 1); }

  [[nodiscard]] virtual Prediction prediction() const = 0;
  [[nodiscard]] virtual const Schedule* schedule() const { return nullptr; }  // that of noise prediction
  [[nodiscard]] virtual Levels levels(std::int64_t count) const = 0;          // that a solver walks through

  // Steps to train on: int64 [count] on `device`.
  [[nodiscard]] virtual torch::Tensor drawn_steps(std::int64_t count, const torch::Generator& random,
                                                  torch::Device device) const = 0;

  // Steps are int64 [B]; x and noise are [B, C, ...].
  [[nodiscard]] virtual torch::Tensor times(const torch::Tensor& step) const = 0;
  [[nodiscard]] virtual torch::Tensor noised(const torch::Tensor& x_0, const torch::Tensor& step,
                                             const torch::Tensor& noise) const = 0;
  // What the network should give in its first C channels.
  [[nodiscard]] virtual torch::Tensor target(const torch::Tensor& x_0, const torch::Tensor& noise) const = 0;
  // [B]; of an output with twice the channels, noise prediction learns a variance too (Gaussian::loss).
  [[nodiscard]] virtual torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& x_0,
                                           const torch::Tensor& x_t, const torch::Tensor& step,
                                           const torch::Tensor& noise) const = 0;
};

inline constexpr std::array<std::string_view, 3> kProcesses = {"linear", "cosine", "flow"};

// One of kProcesses: the noise schedules of parse_schedule, or a rectified flow. Its tensors are on `device`.
std::shared_ptr<const Process> make_process(std::string_view name, std::int64_t steps = 1000,
                                            torch::Device device = torch::kCPU);
std::shared_ptr<const Process> make_process(Schedule schedule, torch::Device device = torch::kCPU);

}  // namespace mhla::diffusion
