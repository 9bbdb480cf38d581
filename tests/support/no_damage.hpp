// For readers that report damage and go on: here every report is a failure of the test.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace mhla::testing {

inline void no_damage(const std::string& line) { ADD_FAILURE() << line; }

}  // namespace mhla::testing
