// What stands in for decoding on CUDA in a build without it.
#include "cuda/decode/decode.hpp"

namespace mhla::cuda {
namespace {

[[noreturn]] void refuse() {
  throw Error("device is cuda; it must be cpu: this build of libmhla has no CUDA back end (MHLA_CUDA)");
}

}  // namespace

void decode_step(const DecodeConfig&, std::int64_t, const DecodeArgs&) { refuse(); }
void decode_open(const DecodeConfig&, const DecodeArgs&) { refuse(); }

}  // namespace mhla::cuda
