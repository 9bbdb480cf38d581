// The commands of the program. Each adds itself to the command line; when chosen it runs and reports through `Outcome`.
#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <string>

#include "tasks/usage_error.hpp"

namespace mhla::cli {

using tasks::UsageError;  // exit code 2

struct Outcome {
  int exit_code = 0;  // 0: success, 1: failure
};

// One per folder of src/cli, defined in its command.cpp.
using AddCommand = void(CLI::App& program, Outcome& outcome);
AddCommand add_demo, add_selftest, add_bench, add_analyze, add_classify, add_sample, add_generate, add_serve,
    add_inspect, add_parity, add_encode, add_tokenizer, add_tokenize, add_train, add_eval, add_devices, add_version,
    add_completion, add_docs;

// In the order of the help.
inline constexpr std::array<AddCommand*, 19> kCommands = {
    add_demo,        // a minute's tour
    add_selftest,    // are the results right on this machine?
    add_bench,       // how fast are the operator and whole models?
    add_analyze,     // rank, entropy and sparsity of attention matrices
    add_classify,    // what is in an image?
    add_sample,      // draw pictures
    add_generate,    // go on with a text
    add_serve,       // the same over HTTP
    add_inspect,     // what is in a file of weights, or in a picture's metadata?
    add_parity,      // does this build give stored results?
    add_encode,      // latents of images, to train generators on
    add_tokenizer,   // train, use and look into a tokenizer
    add_tokenize,    // files of tokens, to train language models on
    add_train,       // one task per command of its own
    add_eval,        // the same
    add_devices,     // what can it run on?
    add_version,     // what was it built from?
    add_completion,  // scripts for shells
    add_docs,        // tables for docs/cli.md; hidden
};

// A command that only has commands of its own. `missing` is what the user forgot where none is given: "what to train".
CLI::App& add_group(CLI::App& program, const std::string& name, const std::string& about, const std::string& missing);

std::string names_of_commands(const CLI::App& app);  // "demo, selftest, ..."

// The whole program; returns its exit code and throws nothing.
int run_program(int argc, const char* const* argv);

}  // namespace mhla::cli
