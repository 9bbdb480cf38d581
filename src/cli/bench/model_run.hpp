// One benchmark of whole models: the same model with different attention, checked first, then timed in turns.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "cli/bench/model_workload.hpp"
#include "cli/bench/profile.hpp"
#include "io/json.hpp"

namespace mhla::cli::bench {

struct ModelRow {
  std::string model, attention, pass, device, dtype;
  std::int64_t height = 0, width = 0;  // of the images, in pixels; 0 of language models
  std::int64_t tokens = 0;             // N, of the first layer
  std::int64_t blocks = 0;             // M, of the first layer; 0 without MHLA
  std::int64_t batch = 0;
  double ms_median = 0.0, ms_p10 = 0.0, ms_p90 = 0.0;
  std::size_t peak_bytes = 0;  // beyond parameters and optimiser
  double rel_err = 0.0;        // of the output, against the same model in a higher precision
  bool out_of_memory = false;  // then times and memory are 0
  std::string softmax;         // of softmax on a GPU: whose kernels
  std::vector<ProfileRow> profile{};

  bool language() const { return height == 0; }
  double images_per_second() const { return 1e3 * static_cast<double>(batch) / ms_median; }
  double tokens_per_second() const { return static_cast<double>(tokens) * images_per_second(); }
  std::string label() const;  // "softmax", "MHLA, M = 16"
  io::Json json() const;
};

struct ModelSettings {
  torch::Device device = torch::kCPU;
  torch::ScalarType dtype = torch::kFloat;  // or kBFloat16
  // infer: a forward pass; guided: one with classifier-free guidance; train: forward, loss, backward, AdamW.
  std::string pass = "infer";
  std::int64_t batch = 1;
  double min_seconds = 0.5;  // of timing per model
  bool profile = false;      // also say where the time of one run goes

  bool training() const { return pass == "train"; }
};

// Times all `models` on inputs of the same size. What does not fit into memory has a row that says so. Throws an Error
// where a result is wrong.
std::vector<ModelRow> run_model_benchmark(const std::vector<WorkloadOptions>& models, const ModelSettings& settings,
                                          Shelf& shelf);

}  // namespace mhla::cli::bench
