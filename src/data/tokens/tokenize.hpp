// Files of text to a split of tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "data/tokens/dataset.hpp"
#include "text/tokenizer.hpp"

namespace mhla::data {

// Writes the folder `split`, which has its name once it is complete. The same files give the same bytes, on any number
// of threads. `progress` is told how much of the files is done, 0 to 1, and how many tokens there are.
TokenIndex tokenize_files(const text::Tokenizer& tokenizer, const std::vector<std::filesystem::path>& files,
                          const std::filesystem::path& split, std::int64_t tokens_of_shard,
                          const std::function<void(double done, std::int64_t tokens)>& progress = nullptr);

}  // namespace mhla::data
