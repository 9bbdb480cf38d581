// The order of windows.
#include "data/tokens/windows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "data/random_stream.hpp"
#include "mhla/types.hpp"

namespace mhla::data {
namespace {

constexpr std::int64_t kMostProcesses = std::int64_t{1} << 20;

void require_option(bool good, std::string_view name, std::int64_t value, const std::string& allowed) {
  if (!good) throw Error(fmt::format("{} is {}; it may be {}", name, value, allowed));
}

}  // namespace

TokenWindows::TokenWindows(std::shared_ptr<const TokenDataset> dataset, const TokenWindowOptions& options)
    : dataset_(std::move(dataset)), options_(options) {
  const std::int64_t size = dataset_->size();
  require_option(options_.length >= 1 && options_.length <= size, "length", options_.length,
                 fmt::format("1 to {}, the tokens of the split", size));
  require_option(options_.step >= 0, "step", options_.step, "0 or more");
  require_option(options_.world >= 1 && options_.world <= kMostProcesses, "world", options_.world,
                 fmt::format("1 to {}", kMostProcesses));
  require_option(options_.rank >= 0 && options_.rank < options_.world, "rank", options_.rank,
                 fmt::format("0 to {}", options_.world - 1));
  require_option(options_.batch >= 1 && options_.batch % options_.world == 0, "batch", options_.batch,
                 fmt::format("a multiple of the {} processes", options_.world));
  if (options_.step == 0) options_.step = options_.length;
  order_.resize(static_cast<std::size_t>((size - options_.length) / options_.step + 1));
  require_option(!options_.train || options_.batch <= windows(), "batch", options_.batch,
                 fmt::format("at most the {} windows of the split", windows()));
  next_ = batches();
}

std::int64_t TokenWindows::batches() const {
  return options_.train ? windows() / options_.batch : (windows() - 1) / options_.batch + 1;
}

void TokenWindows::start(std::int64_t epoch, std::int64_t first_batch) {
  require_option(epoch >= 0, "epoch", epoch, "0 or more");
  require_option(first_batch >= 0 && first_batch <= batches(), "first_batch", first_batch,
                 fmt::format("0 to {}", batches()));
  std::iota(order_.begin(), order_.end(), 0);
  if (options_.train) RandomStream{options_.seed, static_cast<std::uint64_t>(epoch)}.shuffle(order_);
  next_ = first_batch;
}

std::optional<TokenBatch> TokenWindows::next() {
  if (next_ == batches()) return std::nullopt;
  const std::int64_t first = next_++ * options_.batch;
  const std::int64_t count = std::min(options_.batch, windows() - first);
  const auto share = [&](std::int64_t rank) { return first + count * rank / options_.world; };
  const std::int64_t begin = share(options_.rank), end = share(options_.rank + 1), length = options_.length;
  TokenBatch batch{end - begin, length, std::vector<std::int64_t>(static_cast<std::size_t>((end - begin) * length))};
  for (std::int64_t row = 0; row < batch.rows; ++row)
    dataset_->read(order_[begin + row] * options_.step,
                   std::span(batch.tokens).subspan(static_cast<std::size_t>(row * length), length));
  return batch;
}

}  // namespace mhla::data
