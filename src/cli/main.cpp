// The `mhla` program: see program.cpp for the commands.
#include "cli/commands.hpp"

int main(int argc, char** argv) { return mhla::cli::run_program(argc, argv); }
