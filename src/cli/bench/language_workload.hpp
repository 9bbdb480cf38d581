// Language models in benchmarks: their options, and their training.
#pragma once

#include <memory>

#include "cli/bench/model_workload.hpp"
#include "models/lm/lm.hpp"

namespace mhla::cli::bench {

// What `options` ask for; MHLA goes past its blocks by clamping.
models::LmOptions language_options(const WorkloadOptions& options);

std::unique_ptr<Workload> make_language_workload(const WorkloadOptions& options, std::int64_t batch, at::Device device,
                                                 Shelf& shelf);

}  // namespace mhla::cli::bench
