// What a benchmark of models found, for people.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/bench/model_run.hpp"

namespace mhla::cli::bench {

std::string model_table(const std::vector<ModelRow>& rows);

// The least and the largest ratio of MHLA's speed to that of each other attention, a line each.
std::string mhla_summary(const std::vector<ModelRow>& rows);

// Throughput, and memory per image or sequence, over N, one SVG per pass, into the folder.
void draw_model_charts(const std::vector<ModelRow>& rows, const std::filesystem::path& folder);

}  // namespace mhla::cli::bench
