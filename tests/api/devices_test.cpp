// The devices of this machine.
#include <gtest/gtest.h>

#include "mhla/attention.hpp"
#include "support/expect_error.hpp"

namespace mhla {
namespace {

TEST(Devices, EveryDeviceHasADescription) {
  EXPECT_EQ(device_count(Device::cpu), 1);
  for (const Device device : {Device::cpu, Device::cuda})
    for (int index = 0; index < device_count(device); ++index) EXPECT_FALSE(device_description(device, index).empty());
}

TEST(Devices, AnIndexWithoutADeviceIsRefused) {
  expect_error([] { static_cast<void>(device_description(Device::cpu, 1)); }, {"index is 1", "it must be 0"});
  expect_error([] { static_cast<void>(device_description(Device::cpu, -1)); }, {"index is -1"});
  if (device_count(Device::cuda) == 0)
    expect_error([] { static_cast<void>(device_description(Device::cuda, 0)); }, {"cuda", "no GPU"});
}

}  // namespace
}  // namespace mhla
