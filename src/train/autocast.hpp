// Mixed precision for one forward pass: parameters stay float32, matrix products run in bfloat16.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/torch.h>

namespace mhla::train {

class Autocast {
 public:
  Autocast(at::Device device, bool bf16) : type_(device.type()), previous_(at::autocast::is_autocast_enabled(type_)) {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(type_, bf16);
    if (bf16) at::autocast::set_autocast_dtype(type_, at::kBFloat16);
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(type_, previous_);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType type_;
  bool previous_;
};

}  // namespace mhla::train
