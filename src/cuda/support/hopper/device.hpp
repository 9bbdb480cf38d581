// What the current device offers to the sm_90a kernels.
#pragma once

namespace mhla::cuda::hopper {

// Whether the current device and this build have what the sm_90a kernels need.
bool available();

int multiprocessors();  // of the current device

// Buffers of `stage_bytes` that `blocks` thread blocks per multiprocessor can have each, beside `fixed_bytes`.
int stages_that_fit(int blocks, int fixed_bytes, int stage_bytes, int most);

// Clusters of `size` thread blocks that run together, all of the device taken by this kernel; 0 where none fits. A
// kernel is always asked for with the same arguments.
int clusters_at_once(const void* kernel, int size, int threads, int shared_bytes);

}  // namespace mhla::cuda::hopper
