// Classifier-free guidance: the prediction moves away from that without a condition.
#pragma once
namespace mhla::diffusion {

struct Guidance {
  double scale = 1.0;  // 1: none
  // The part of the times, as a share of the largest, in which guidance acts (Kynkaanniemi et al.); elsewhere scale
  // is 1.
  double from = 0.0, to = 1.0;

  void check() const;  // throws an error that names the argument
  [[nodiscard]] bool acts_at(double time, double largest_time) const;
};

}  // namespace mhla::diffusion
