// Processes that train one model together. Launched by mpirun or srun; MPI moves CPU tensors, NCCL those on GPUs.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>

namespace mhla::train {

class Communicator {
 public:
  using Wait = std::function<void()>;

  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int local_rank() const = 0;  // among the processes of this machine: the index of the GPU to use
  virtual std::string describe() const = 0;

  // In place, on contiguous tensors of the same shape on every rank. On a GPU in the order of the current stream.
  virtual void all_reduce(const at::Tensor& tensor) = 0;  // sum
  virtual void broadcast(const at::Tensor& tensor, int root = 0) = 0;
  virtual void barrier() = 0;

  // Begins a sum; the tensor holds it after the returned function was called.
  virtual Wait start_all_reduce(const at::Tensor& tensor) = 0;

  bool leads() const { return rank() == 0; }
  bool any(bool condition);  // true on every rank where it is true on one
};

std::unique_ptr<Communicator> alone();

// One of several processes where a launcher started it so, otherwise alone.
std::unique_ptr<Communicator> make_communicator();

}  // namespace mhla::train
