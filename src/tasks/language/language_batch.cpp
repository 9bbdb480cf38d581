// From memory the device can read directly.
#include "tasks/language/language_batch.hpp"

#include <algorithm>

namespace mhla::tasks {
namespace {

models::Lm::Documents documents_of(const data::TokenBatch& windows, std::int64_t begin) {
  const std::int64_t read = windows.length - 1;
  models::Lm::Documents offsets;
  for (std::int64_t row = 0; row < windows.rows; ++row)
    for (std::int64_t i = 0; i < read; ++i)
      if (i == 0 || windows.tokens[static_cast<std::size_t>(row * windows.length + i)] == begin)
        offsets.push_back(row * read + i);
  offsets.push_back(windows.rows * read);
  return offsets;
}

}  // namespace

LanguageBatch language_batch(const data::TokenBatch& windows, std::optional<std::int64_t> begin, at::Device device) {
  at::Tensor tokens =
      at::empty({windows.rows, windows.length}, at::TensorOptions(at::kLong).pinned_memory(device.is_cuda()));
  std::ranges::copy(windows.tokens, tokens.mutable_data_ptr<std::int64_t>());
  tokens = tokens.to(device, /*non_blocking=*/true);
  const std::int64_t read = windows.length - 1;
  return {tokens.narrow(1, 0, read), tokens.narrow(1, 1, read),
          begin ? documents_of(windows, *begin) : models::Lm::Documents{}};
}

}  // namespace mhla::tasks
