// A block has a row of logits. Each thread keeps the largest logit it has met and the sum of exponentials relative to
// it; the pairs of all threads are joined, first within warps and then over them. The second walk over the row finds it
// in the cache.
#include <cfloat>

#include "cuda/layers/warp_rows.cuh"
#include "mhla/layers.hpp"

namespace mhla::cuda::layers {
namespace {

constexpr int kVector = 8, kThreads = 512;

// The sum of exp(x) is sum exp(peak).
struct LogSum {
  float peak = -FLT_MAX, sum = 0.0F;
};

__device__ __forceinline__ LogSum joined(const LogSum& a, const LogSum& b) {
  const float peak = fmaxf(a.peak, b.peak);
  return {peak, a.sum * __expf(a.peak - peak) + b.sum * __expf(b.peak - peak)};
}

__device__ __forceinline__ LogSum of_warp(LogSum own) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    own = joined(
        own, {__shfl_xor_sync(rows::kAllLanes, own.peak, offset), __shfl_xor_sync(rows::kAllLanes, own.sum, offset)});
  return own;
}

template <typename E>
__device__ __forceinline__ LogSum of_thread(const E* row, std::int64_t words) {
  LogSum own;
  for (std::int64_t word = threadIdx.x * kVector; word < words; word += kThreads * kVector) {
    float x[kVector];
    load<kVector>(row + word, x);
    float peak = own.peak, sum = 0.0F;
#pragma unroll
    for (int i = 0; i < kVector; ++i) peak = fmaxf(peak, x[i]);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum += __expf(x[i] - peak);
    own = {peak, own.sum * __expf(own.peak - peak) + sum};
  }
  return own;
}

template <typename E>
__device__ __forceinline__ void write_gradient(E* row, std::int64_t words, std::int64_t label, float log_sum,
                                               float share) {
  for (std::int64_t word = threadIdx.x * kVector; word < words; word += kThreads * kVector) {
    float x[kVector];
    load<kVector>(row + word, x);
#pragma unroll
    for (int i = 0; i < kVector; ++i) x[i] = share * (__expf(x[i] - log_sum) - (word + i == label ? 1.0F : 0.0F));
    store<kVector>(row + word, x);
  }
}

template <typename E>
__global__ void __launch_bounds__(kThreads) cross_entropy(CrossEntropy p, CrossEntropy::Args args) {
  __shared__ LogSum of_warps[kThreads / kWarp];
  const std::int64_t index = blockIdx.x, label = args.labels[index];
  E* const row = static_cast<E*>(args.logits) + index * p.words;
  if (label == p.ignored) {
    constexpr float kZeros[kVector] = {};
    if (args.share != nullptr)
      for (std::int64_t word = threadIdx.x * kVector; word < p.words; word += kThreads * kVector)
        store<kVector>(row + word, kZeros);
    if (threadIdx.x == 0) args.loss[index] = 0.0F;
    return;
  }
  const LogSum own = of_warp(of_thread(row, p.words));
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  if (lane == 0) of_warps[warp] = own;
  __syncthreads();
  const LogSum all = of_warp(lane < kThreads / kWarp ? of_warps[lane] : LogSum{});
  const float log_sum = all.peak + __logf(all.sum);
  if (threadIdx.x == 0) {
    const bool known = label >= 0 && label < p.words;
    args.loss[index] = known ? log_sum - static_cast<float>(to_accumulator(row[label])) : NAN;
  }
  if (args.share == nullptr) return;
  __syncthreads();  // the label's logit has been read
  write_gradient(row, p.words, label, log_sum, *args.share);
}

}  // namespace

void run(const CrossEntropy& p, const CrossEntropy::Args& args, void* stream) {
  if (p.rows == 0) return;
  with_element(p.dtype, "cross_entropy", [&]<typename E>() {
    cross_entropy<E>
        <<<rows::grid_of(p.rows, "cross_entropy"), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(p, args);
  });
  check(cudaGetLastError(), "cross_entropy");
}

}  // namespace mhla::cuda::layers
