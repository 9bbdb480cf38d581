// What stands in for the fused CUDA kernels in a build without them.
#include "cuda/fused/fused.hpp"

namespace mhla::cuda {
namespace {

[[noreturn]] void refuse() {
  throw Error("device is cuda; it must be cpu: this build of libmhla has no CUDA back end (MHLA_CUDA)");
}

}  // namespace

void forward(const fused::RotaryFeatures&, const fused::RotaryFeatures::Forward&) { refuse(); }
void forward(const fused::GatedNorm&, const fused::GatedNorm::Forward&) { refuse(); }
void forward(const fused::Modulate&, const fused::Modulate::Forward&) { refuse(); }
void backward(const fused::RotaryFeatures&, const fused::RotaryFeatures::Backward&) { refuse(); }
void backward(const fused::GatedNorm&, const fused::GatedNorm::Backward&) { refuse(); }
void backward(const fused::Modulate&, const fused::Modulate::Backward&) { refuse(); }

}  // namespace mhla::cuda
