// Runs a command line inside of the test program and keeps what it said.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/commands.hpp"

namespace mhla::cli {

struct Captured {
  int exit_code;
  std::string out, err;
};

inline Captured run_captured(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "mhla");
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_program(static_cast<int>(argv.size()), argv.data());
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

}  // namespace mhla::cli
