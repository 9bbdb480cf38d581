// What stands in for the fused layers in a build without CUDA.
#include "cuda/layers/layers.hpp"

namespace mhla::cuda::layers {
namespace {

[[noreturn]] void refuse() {
  throw Error("device is cuda; it must be cpu: this build of libmhla has no CUDA back end (MHLA_CUDA)");
}

}  // namespace

std::int64_t AddNorm::partial_elements() const { refuse(); }
std::int64_t QkvFeatures::partial_elements() const { refuse(); }
std::int64_t BiasGelu::partial_elements() const { refuse(); }
std::int64_t Depthwise::partial_elements() const { refuse(); }
void forward(const AddNorm&, const AddNorm::Forward&, void*) { refuse(); }
void backward(const AddNorm&, const AddNorm::Backward&, void*) { refuse(); }
void forward(const QkvFeatures&, const QkvFeatures::Forward&, void*) { refuse(); }
void backward(const QkvFeatures&, const QkvFeatures::Backward&, void*) { refuse(); }
void forward(const BiasGelu&, const BiasGelu::Forward&, void*) { refuse(); }
void backward(const BiasGelu&, const BiasGelu::Backward&, void*) { refuse(); }
void forward(const Depthwise&, const Depthwise::Forward&, void*) { refuse(); }
void filter_gradient(const Depthwise&, const Depthwise::FilterGradient&, void*) { refuse(); }

}  // namespace mhla::cuda::layers
