// `mhla tokenizer`: a command for each thing to do with one.
#include "cli/tokenizer/commands.hpp"

namespace mhla::cli {

void add_tokenizer(CLI::App& program, Outcome&) {
  CLI::App& tokenizer = add_group(program, "tokenizer", "Train, use and look into a tokenizer", "what to do");
  add_tokenizer_train(tokenizer);
  add_tokenizer_encode(tokenizer);
  add_tokenizer_decode(tokenizer);
  add_tokenizer_inspect(tokenizer);
}

}  // namespace mhla::cli
