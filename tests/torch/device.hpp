// The device the tests of the torch layer run on.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>

namespace mhla::test {

// MHLA_TEST_DEVICE, "cpu" when not set.
inline at::Device device() {
  const char* name = std::getenv("MHLA_TEST_DEVICE");
  return {name == nullptr ? "cpu" : name};
}

// Without a GPU nothing else runs, and one line says why.
class NeedsItsDevice : public testing::Environment {
 public:
  void SetUp() override {
    if (device().is_cuda() && !torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device: GPU tests not run";
  }
};

}  // namespace mhla::test
