#include "api/device.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

#ifdef MHLA_TEST_CUDA
#include <cuda_runtime_api.h>
#endif

namespace mhla::test {
namespace {

// Without a GPU nothing else runs, and one line says why.
class NeedsItsDevice : public testing::Environment {
 public:
  void SetUp() override {
    if (test_device() == Device::cuda && device_count(Device::cuda) == 0)
      GTEST_SKIP() << "no CUDA device: GPU tests not run";
  }
};
const auto* const kNeedsItsDevice = testing::AddGlobalTestEnvironment(new NeedsItsDevice);

#ifdef MHLA_TEST_CUDA
void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}
#endif

template <typename Redirect>
void redirect_inputs(Inputs& in, Redirect&& redirect) {
  redirect(in.q.data), redirect(in.k.data), redirect(in.v.data), redirect(in.q_den.data), redirect(in.k_den.data);
  redirect(in.mixing), redirect(in.initial.S), redirect(in.initial.z);
}

}  // namespace

Device test_device() {
  const char* device = std::getenv("MHLA_TEST_DEVICE");
  return device == nullptr ? Device::cpu : parse_device(device);
}

#ifdef MHLA_TEST_CUDA
DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  check(cudaMalloc(&data_, bytes));
  check(cudaMemset(data_, 0xff, bytes));
}
DeviceMemory::~DeviceMemory() { static_cast<void>(cudaFree(data_)); }
void DeviceMemory::upload(const void* host) { check(cudaMemcpy(data_, host, bytes_, cudaMemcpyHostToDevice)); }
void DeviceMemory::download(void* host) const {
  check(cudaDeviceSynchronize());
  check(cudaMemcpy(host, data_, bytes_, cudaMemcpyDeviceToHost));
}
#else
DeviceMemory::DeviceMemory(std::size_t) { throw std::runtime_error("built without CUDA"); }
DeviceMemory::~DeviceMemory() = default;
void DeviceMemory::upload(const void*) {}
void DeviceMemory::download(void*) const {}
#endif

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

void DeviceCopies::add(const Buffer& buffer) {
  if (buffer.bytes == 0 || copies_.contains(buffer.data)) return;
  DeviceMemory memory(buffer.bytes);
  memory.upload(buffer.data);
  copies_.emplace(buffer.data, std::move(memory));
}

void DeviceCopies::add_output(const Buffer& buffer) {
  add(buffer);
  if (buffer.bytes > 0) outputs_.push_back(buffer);
}

void DeviceCopies::download_outputs() const {
  for (const Buffer& buffer : outputs_) copies_.at(buffer.data).download(buffer.data);
}

void DeviceCopies::redirect(ForwardArgs& args) const {
  const auto redirect = [&](auto*& pointer) { pointer = pointer == nullptr ? nullptr : copies_.at(pointer).data(); };
  redirect_inputs(args.in, redirect);
  redirect(args.o.data), redirect(args.final_state.S), redirect(args.final_state.z);
}

void DeviceCopies::redirect(BackwardArgs& args) const {
  const auto redirect = [&](auto*& pointer) { pointer = pointer == nullptr ? nullptr : copies_.at(pointer).data(); };
  redirect_inputs(args.in, redirect);
  redirect(args.o.data), redirect(args.d_o.data), redirect(args.d_final.S), redirect(args.d_final.z);
  redirect(args.d_q.data), redirect(args.d_k.data), redirect(args.d_v.data);
  redirect(args.d_q_den.data), redirect(args.d_k_den.data), redirect(args.d_mixing);
  redirect(args.d_initial.S), redirect(args.d_initial.z);
}

}  // namespace mhla::test
