// From the types of a state to the kernels compiled for them.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/decode/decode.hpp"

namespace mhla::cuda {
namespace decode {

// Defined in kernel.cuh, compiled in one file for each element type.
template <typename E, typename A>
void step(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args);
template <typename E, typename A>
void open(const DecodeConfig& config, const DecodeArgs& args);

namespace {

template <typename A, typename F>
void with_element(DType dtype, F&& f) {
  if (dtype == DType::bf16)
    f.template operator()<__nv_bfloat16, A>();
  else if (dtype == DType::f16)
    f.template operator()<__half, A>();
  else
    f.template operator()<float, A>();
}

// Calls f<element type, type of S and P>().
template <typename F>
void with_types(const DecodeConfig& config, F&& f) {
  if (config.dtype == DType::f64)
    f.template operator()<double, double>();
  else if (config.summary_dtype == DType::bf16)
    with_element<__nv_bfloat16>(config.dtype, f);
  else
    with_element<float>(config.dtype, f);
}

}  // namespace
}  // namespace decode

void decode_step(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args) {
  decode::with_types(config, [&]<typename E, typename A>() { decode::step<E, A>(config, tokens, args); });
}

void decode_open(const DecodeConfig& config, const DecodeArgs& args) {
  decode::with_types(config, [&]<typename E, typename A>() { decode::open<E, A>(config, args); });
}

}  // namespace mhla::cuda
