// What causal layers keep of the frames that have passed, so that a video can go through them piece by piece.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <vector>

namespace mhla::models::wan_vae {

class FrameCache {
 public:
  // Before each pass through the layers, which ask for their places in the same order.
  void begin_piece() {
    first_piece_ = pieces_++ == 0;
    next_ = 0;
  }
  bool first_piece() const { return first_piece_; }

  // Of the layer that asks: undefined until it has seen a frame.
  at::Tensor& next() {
    if (next_ == kept_.size()) kept_.emplace_back();
    return kept_[next_++];
  }

 private:
  std::vector<at::Tensor> kept_;
  std::size_t next_ = 0, pieces_ = 0;
  bool first_piece_ = true;
};

}  // namespace mhla::models::wan_vae
