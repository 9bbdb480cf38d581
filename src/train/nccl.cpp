// The part of NCCL's C interface that is used here; its values have been the same in every release since 2.10.
#include "train/nccl.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "mhla/types.hpp"

namespace mhla::train {
namespace {

constexpr int kNcclSum = 0;

struct NcclFunctions {
  const char* (*error_string)(int) = nullptr;
  int (*get_unique_id)(Nccl::UniqueId*) = nullptr;
  int (*init_rank)(void**, int, Nccl::UniqueId, int) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int, int, void*, void*) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t, int, int, void*, void*) = nullptr;
  bool complete = false;
};

const NcclFunctions& nccl_functions() {
  static const NcclFunctions functions = [] {
    NcclFunctions found;
    void* library = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return found;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      return function != nullptr;
    };
    found.complete = find(found.error_string, "ncclGetErrorString") && find(found.get_unique_id, "ncclGetUniqueId") &&
                     find(found.init_rank, "ncclCommInitRank") && find(found.destroy, "ncclCommDestroy") &&
                     find(found.all_reduce, "ncclAllReduce") && find(found.broadcast, "ncclBroadcast");
    return found;
  }();
  return functions;
}

void check_nccl(int status, const char* what) {
  if (status != 0) throw Error(fmt::format("NCCL {}: {}", what, nccl_functions().error_string(status)));
}

int nccl_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kByte:
      return 1;
    case at::kLong:
      return 4;
    case at::kHalf:
      return 6;
    case at::kFloat:
      return 7;
    case at::kDouble:
      return 8;
    case at::kBFloat16:
      return 9;
    default:
      throw Error(fmt::format("communication of {} tensors; it may be float, double, bfloat16, float16, int64 or uint8",
                              c10::toString(tensor.scalar_type())));
  }
}

c10::Stream current_stream(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

bool Nccl::available() { return nccl_functions().complete; }

Nccl::UniqueId Nccl::unique_id() {
  UniqueId id{};
  check_nccl(nccl_functions().get_unique_id(&id), "start");
  return id;
}

Nccl::Nccl(const UniqueId& id, int rank, int size, at::Device device)
    : device_(device), stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true)) {
  const c10::DeviceGuard guard(device_);
  check_nccl(nccl_functions().init_rank(&communicator_, size, id, rank), "start");
}

Nccl::~Nccl() { nccl_functions().destroy(communicator_); }

void Nccl::broadcast(const at::Tensor& tensor, int root) {
  const c10::DeviceGuard guard(device_);
  check_nccl(
      nccl_functions().broadcast(tensor.data_ptr(), tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
                                 nccl_type(tensor), root, communicator_, current_stream(device_).native_handle()),
      "broadcast");
}

std::function<void()> Nccl::start_all_reduce(const at::Tensor& tensor) {
  const c10::DeviceGuard guard(device_);
  c10::Event ready(device_.type());
  ready.record(current_stream(device_));
  ready.block(stream_);
  check_nccl(nccl_functions().all_reduce(tensor.data_ptr(), tensor.data_ptr(), static_cast<std::size_t>(tensor.numel()),
                                         nccl_type(tensor), kNcclSum, communicator_, stream_.native_handle()),
             "sum");
  const auto done = std::make_shared<c10::Event>(device_.type());
  done->record(stream_);
  return [tensor, done, device = device_] { done->block(current_stream(device)); };
}

}  // namespace mhla::train
