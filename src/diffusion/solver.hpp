// Solvers of the sampling equation. All work on the predicted data x_0 and on lambda = log(alpha / sigma), so that one
// code serves noise prediction and rectified flow.
#pragma once
#include <torch/torch.h>

#include <optional>
#include <string_view>

#include "diffusion/levels.hpp"

namespace mhla::diffusion {

enum class Method : std::uint8_t {
  first_order,  // DDIM for noise prediction, Euler for a flow
  dpmpp_2m,     // DPM-Solver++, two steps, midpoint
  unipc,        // UniPC of order 2 with B(h) = e^h - 1: dpmpp_2m with a correction of the state before each step
};

// What the network's output means.
enum class Prediction : std::uint8_t { noise, velocity };
torch::Tensor predicted_data(const torch::Tensor& output, const torch::Tensor& x, const Level& level,
                             Prediction prediction);

class Solver {
 public:
  Solver(Method method, Levels levels);

  [[nodiscard]] std::int64_t steps() const { return static_cast<std::int64_t>(levels_.size()) - 1; }
  [[nodiscard]] const Levels& levels() const { return levels_; }

  // The state at level step + 1 from that at level `step`; steps are taken in order, from 0.
  torch::Tensor step(std::int64_t step, const torch::Tensor& x, const torch::Tensor& x_0);

 private:
  struct Past {
    std::int64_t step;
    torch::Tensor x, x_0;
    bool second_order;  // whether the step from here used the one before
  };
  [[nodiscard]] double lambda(std::int64_t i) const;
  [[nodiscard]] torch::Tensor predict(std::int64_t step, const torch::Tensor& x, const torch::Tensor& x_0,
                                      bool second_order) const;
  [[nodiscard]] torch::Tensor correct(std::int64_t step, const torch::Tensor& x_0) const;

  Method method_;
  Levels levels_;
  std::optional<Past> last_, before_last_;
};

}  // namespace mhla::diffusion
