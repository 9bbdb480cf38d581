// The machine a result was measured on.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "io/json.hpp"

namespace mhla::cli {

int logical_cores();   // those this process may use
int threads_in_use();  // torch's setting, which the operator shares
CLI::Option* add_threads_option(CLI::App& command, int& threads);
void use_threads(int threads);  // 0: keep the present setting
std::string machine_line();     // "Intel(R) Xeon(R) ..., 2 threads, avx512"
io::Json machine_json();

}  // namespace mhla::cli
