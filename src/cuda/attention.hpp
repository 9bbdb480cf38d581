// The CUDA back end as plan(), forward() and backward() see it. Everything is enqueued on args.run.stream of the
// current device.
#pragma once

#include <cstddef>
#include <string>

#include "mhla/attention.hpp"

namespace mhla::cuda {

Algorithm cheaper(const Problem& problem);  // of the two forms, where both exist and nothing is masked
std::size_t forward_workspace(const Problem& problem, Algorithm algorithm);   // bytes
std::size_t backward_workspace(const Problem& problem, Algorithm algorithm);  // bytes
std::size_t kept_bytes(const Problem& problem);                               // of the summary form
void forward(const Problem& problem, Algorithm algorithm, const ForwardArgs& args);
void backward(const Problem& problem, Algorithm algorithm, const BackwardArgs& args);

int device_count();                          // 0 without a driver or a GPU
std::string device_description(int device);  // name, memory, SMs, compute capability: for `mhla devices`

}  // namespace mhla::cuda
