// The commands of the program. Each adds itself to the command line; when chosen it runs and reports through `Outcome`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tasks/usage_error.hpp"

namespace mhla::cli {

using tasks::UsageError;  // exit code 2

struct Outcome {
  int exit_code = 0;  // 0: success, 1: failure
};

void add_demo(CLI::App& program, Outcome& outcome);
void add_selftest(CLI::App& program, Outcome& outcome);
void add_bench(CLI::App& program, Outcome& outcome);
void add_analyze(CLI::App& program, Outcome& outcome);
void add_classify(CLI::App& program, Outcome& outcome);
void add_inspect(CLI::App& program, Outcome& outcome);
void add_parity(CLI::App& program, Outcome& outcome);
void add_train(CLI::App& program, Outcome& outcome);
void add_eval(CLI::App& program, Outcome& outcome);
void add_devices(CLI::App& program, Outcome& outcome);
void add_version(CLI::App& program, Outcome& outcome);

std::string names_of_commands(const CLI::App& app);  // "demo, selftest, ..."

// The whole program; returns its exit code and throws nothing.
int run_program(int argc, const char* const* argv);

}  // namespace mhla::cli
