// What `mhla tokenizer` has.
#pragma once

#include "cli/commands.hpp"

namespace mhla::cli {

void add_tokenizer_train(CLI::App& tokenizer);
void add_tokenizer_encode(CLI::App& tokenizer);
void add_tokenizer_decode(CLI::App& tokenizer);
void add_tokenizer_inspect(CLI::App& tokenizer);

}  // namespace mhla::cli
