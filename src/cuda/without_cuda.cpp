// What stands in for src/cuda in a build without it: no device, and a clear word to whoever asks for one.
#include "cuda/attention.hpp"
#include "cuda/decode/decode.hpp"
#include "cuda/fused/fused.hpp"
#include "mhla/layers.hpp"

namespace mhla::cuda {
namespace {

[[noreturn]] void refuse() {
  throw Error("device is cuda; it must be cpu: this build of libmhla has no CUDA back end (MHLA_CUDA)");
}

}  // namespace

Algorithm cheaper(const Problem&) { refuse(); }
std::size_t forward_workspace(const Problem&, Algorithm) { refuse(); }
std::size_t backward_workspace(const Problem&, Algorithm) { refuse(); }
std::size_t kept_bytes(const Problem&) { refuse(); }
void forward(const Problem&, Algorithm, const ForwardArgs&) { refuse(); }
void backward(const Problem&, Algorithm, const BackwardArgs&) { refuse(); }
int device_count() { return 0; }
std::string device_description(int) { refuse(); }

void decode_step(const DecodeConfig&, std::int64_t, const DecodeArgs&) { refuse(); }
void decode_open(const DecodeConfig&, const DecodeArgs&) { refuse(); }

void forward(const fused::RotaryFeatures&, const fused::RotaryFeatures::Forward&) { refuse(); }
void forward(const fused::GatedNorm&, const fused::GatedNorm::Forward&) { refuse(); }
void forward(const fused::Modulate&, const fused::Modulate::Forward&) { refuse(); }
void backward(const fused::RotaryFeatures&, const fused::RotaryFeatures::Backward&) { refuse(); }
void backward(const fused::GatedNorm&, const fused::GatedNorm::Backward&) { refuse(); }
void backward(const fused::Modulate&, const fused::Modulate::Backward&) { refuse(); }

namespace layers {

std::int64_t AddNorm::partial_elements() const { refuse(); }
std::int64_t AddModulate::partial_elements() const { refuse(); }
std::int64_t QkvFeatures::partial_elements() const { refuse(); }
std::int64_t BiasGelu::partial_elements() const { refuse(); }
std::int64_t Depthwise::partial_elements() const { refuse(); }
void forward(const AddNorm&, const AddNorm::Forward&, void*) { refuse(); }
void backward(const AddNorm&, const AddNorm::Backward&, void*) { refuse(); }
void forward(const AddModulate&, const AddModulate::Forward&, void*) { refuse(); }
void backward(const AddModulate&, const AddModulate::Backward&, void*) { refuse(); }
void forward(const QkvFeatures&, const QkvFeatures::Forward&, void*) { refuse(); }
void backward(const QkvFeatures&, const QkvFeatures::Backward&, void*) { refuse(); }
void forward(const BiasGelu&, const BiasGelu::Forward&, void*) { refuse(); }
void backward(const BiasGelu&, const BiasGelu::Backward&, void*) { refuse(); }
void forward(const Depthwise&, const Depthwise::Forward&, void*) { refuse(); }
void filter_gradient(const Depthwise&, const Depthwise::FilterGradient&, void*) { refuse(); }
void forward(const SwiGlu&, const SwiGlu::Forward&, void*) { refuse(); }
void backward(const SwiGlu&, const SwiGlu::Backward&, void*) { refuse(); }
void run(const CrossEntropy&, const CrossEntropy::Args&, void*) { refuse(); }

}  // namespace layers
}  // namespace mhla::cuda
