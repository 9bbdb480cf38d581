// Where the time of some work goes: kernels on a GPU, torch's operators on the CPU.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace mhla::cli::bench {

struct ProfileRow {
  std::string name;
  double ms = 0.0;  // of its own, without what it calls
  std::int64_t calls = 0;
};

// One run of `work`, the longest rows first.
std::vector<ProfileRow> profile_of(at::Device device, const std::function<void()>& work);

// The first rows as a table, with their shares of all.
std::string profile_table(const std::vector<ProfileRow>& rows, std::size_t most = 30);

}  // namespace mhla::cli::bench
