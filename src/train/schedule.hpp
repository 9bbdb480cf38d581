// The learning rate over the steps of a run: a linear warm-up, then a cosine, a line or a constant.
#pragma once

#include <cstdint>
#include <string>

namespace mhla::train {

struct Schedule {
  std::string kind = "cosine";  // cosine, linear, constant
  double peak = 1e-3;
  double floor = 0.0;        // reached after the last step
  double warmup_from = 0.0;  // learning rate of step 0; the peak is reached at step `warmup`
  std::int64_t warmup = 0;   // steps
  std::int64_t steps = 1;    // of the whole run

  void validate() const;
  double at(std::int64_t step) const;  // steps count from 0
};

}  // namespace mhla::train
