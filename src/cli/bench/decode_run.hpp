// The decoding of language models in a benchmark: steps of one token per sequence from states that have seen a context.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "io/json.hpp"
#include "models/lm/lm.hpp"

namespace mhla::cli::bench {

struct DecodeRow {
  std::string model, attention, device, dtype, summaries;  // summaries: element type of MHLA's, empty without MHLA
  std::int64_t context = 0, batch = 0;
  std::int64_t blocks = 0;                           // M, 0 without MHLA
  std::size_t state_bytes = 0;                       // of all sequences, without room for more tokens
  std::string softmax;                               // of softmax on a GPU: whose kernels
  bool out_of_memory = false;                        // then there are no times
  double ms_mean = 0.0, ms_p10 = 0.0, ms_p90 = 0.0;  // of a step of all sequences; p10 and p90 of four

  double tokens_per_second() const { return 1e3 * static_cast<double>(batch) / ms_mean; }
  io::Json json() const;
};

struct DecodeSettings {
  torch::Device device = torch::kCPU;
  torch::ScalarType summaries = torch::kFloat;  // of MHLA's state; or kBFloat16 beside that type
  std::int64_t context = 2048, batch = 1;
  int steps = 64;  // that are timed: whole blocks of MHLA, each of which ends with its sums
};

// A state of `batch` sequences that have seen `context` tokens and have room for `more`. Its contents are random: no
// prompt is run. What a step computes does not depend on them.
models::LmState made_state(const models::Lm& model, const DecodeSettings& settings, std::int64_t more);

// The row of a model in evaluation mode; where the state does not fit into memory, one that says so.
DecodeRow run_decode_benchmark(models::Lm& model, const DecodeSettings& settings);

std::string decode_table(const std::vector<DecodeRow>& rows);

}  // namespace mhla::cli::bench
