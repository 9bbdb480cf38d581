// `mhla eval`: one command per task.
#include "cli/eval/classify.hpp"
#include "cli/eval/generate.hpp"
#include "cli/eval/language.hpp"

namespace mhla::cli {

void add_eval(CLI::App& program, Outcome&) {
  CLI::App& eval = add_group(program, "eval", "Evaluate a trained model", "what to evaluate");
  add_eval_classify(eval);
  add_eval_generate(eval);
  add_eval_language(eval);
}

}  // namespace mhla::cli
