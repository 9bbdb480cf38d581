// What stands in for the CUDA neighbours in a build without them.
#include "cuda/neighbours/neighbours.hpp"

namespace mhla::cuda {
namespace {

[[noreturn]] void refuse() {
  throw Error("device is cuda; it must be cpu: this build of libmhla has no CUDA back end (MHLA_CUDA)");
}

}  // namespace

void forward(const neighbours::RotaryFeatures&, const neighbours::RotaryFeatures::Forward&) { refuse(); }
void forward(const neighbours::GatedNorm&, const neighbours::GatedNorm::Forward&) { refuse(); }
void forward(const neighbours::Modulate&, const neighbours::Modulate::Forward&) { refuse(); }
void backward(const neighbours::RotaryFeatures&, const neighbours::RotaryFeatures::Backward&) { refuse(); }
void backward(const neighbours::GatedNorm&, const neighbours::GatedNorm::Backward&) { refuse(); }
void backward(const neighbours::Modulate&, const neighbours::Modulate::Backward&) { refuse(); }

}  // namespace mhla::cuda
