// Windows of equal length over the tokens of a split, in batches, for training and evaluation.
//
// Window i begins at token i x step; documents do not matter, and what is left at the end is dropped. What batch b of
// epoch e holds depends on (seed, e, b) alone. The windows of a global batch are shared out among the processes in
// order, as in ImageLoader (data/image_loader.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/tokens/dataset.hpp"

namespace mhla::data {

struct TokenWindowOptions {
  std::int64_t length = 2048;
  std::int64_t step = 0;   // from one window to the next; 0 is `length`: no token is in two
  std::int64_t batch = 8;  // windows of a global batch, over all processes
  bool train = false;      // shuffled, whole batches only; otherwise every window once, in order
  std::uint64_t seed = 0;
  std::int64_t rank = 0, world = 1;
};

struct TokenBatch {
  std::int64_t rows = 0, length = 0;
  std::vector<std::int64_t> tokens = {};  // rows x length
};

class TokenWindows {
 public:
  TokenWindows(std::shared_ptr<const TokenDataset> dataset, const TokenWindowOptions& options);

  // Of one epoch, and the same on every process.
  std::int64_t windows() const { return std::ssize(order_); }
  std::int64_t batches() const;

  // Begins `epoch` at `first_batch`.
  void start(std::int64_t epoch, std::int64_t first_batch = 0);
  // This process's part of the next batch; nothing at the end of the epoch.
  std::optional<TokenBatch> next();

 private:
  std::shared_ptr<const TokenDataset> dataset_;
  TokenWindowOptions options_;
  std::vector<std::int64_t> order_;
  std::int64_t next_;  // batch
};

}  // namespace mhla::data
