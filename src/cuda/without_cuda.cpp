// What stands in for src/cuda in a build without it: no device, and a clear word to whoever asks for one.
#include "cuda/attention.hpp"

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

}  // namespace mhla::cuda
