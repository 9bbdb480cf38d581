// NCCL, found when the program runs: a torch with CUDA has loaded it already. So builds need neither its header nor
// CUDA's, and the same program runs where there is no GPU.
#pragma once

#include <torch/torch.h>

#include <array>
#include <functional>

namespace mhla::train {

class Nccl {
 public:
  struct UniqueId {
    std::array<char, 128> bytes;
  };

  static bool available();
  static UniqueId unique_id();

  Nccl(const UniqueId& id, int rank, int size, at::Device device);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  void broadcast(const at::Tensor& tensor, int root);

  // The sum runs on a stream of its own, after what the current stream holds; the returned function makes the stream
  // that is current then wait for it.
  std::function<void()> start_all_reduce(const at::Tensor& tensor);

 private:
  void* communicator_ = nullptr;
  at::Device device_;
  c10::Stream stream_;
};

}  // namespace mhla::train
