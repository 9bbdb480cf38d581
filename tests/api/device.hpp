// The device the operator's tests run on, and its memory.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "mhla/attention.hpp"

namespace mhla::test {

// MHLA_TEST_DEVICE, "cpu" when not set.
Device test_device();

// Memory of the current CUDA device, every byte 0xff (NaN in each element type). Without a CUDA back end it cannot be
// had.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  void upload(const void* host);
  void download(void* host) const;  // when everything enqueued before is done

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

struct Buffer {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// Copies of host buffers on the device, for the time of one call.
class DeviceCopies {
 public:
  void add(const Buffer& buffer);
  void add_output(const Buffer& buffer);
  void download_outputs() const;

  // Makes the host pointers of a call point to the copies.
  void redirect(ForwardArgs& args) const;
  void redirect(BackwardArgs& args) const;

 private:
  std::map<const void*, DeviceMemory> copies_;
  std::vector<Buffer> outputs_;
};

}  // namespace mhla::test
