// The curves of a run as one HTML page.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/json.hpp"
#include "train/run_log.hpp"

namespace mhla::train {

// `rows` as in metrics.jsonl; `about` begins with the title. Pictures that rows name are read from `folder`.
std::string run_page(const std::vector<io::Json>& rows, const Facts& about, const std::filesystem::path& folder);

}  // namespace mhla::train
