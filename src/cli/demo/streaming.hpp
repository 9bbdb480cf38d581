// A long stream of tokens through one causal layer, one token at a time, and what softmax attention with a cache of
// keys and values takes per token at the same context.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace mhla::cli {

struct StreamPoint {
  std::int64_t tokens = 0;    // context so far
  double microseconds = 0.0;  // per token, mean over the stretch that ends here
  double bytes = 0.0;         // memory of the context
};

struct StreamRun {
  std::int64_t heads = 0, dim = 0, block = 0, trained_blocks = 0;
  std::vector<StreamPoint> mhla;
  std::vector<StreamPoint> softmax;
};

StreamRun run_stream(std::int64_t tokens, const std::function<void(double)>& step);

// Median time per token of the last tenth over that of the first tenth.
double flatness(const std::vector<StreamPoint>& points);

}  // namespace mhla::cli
