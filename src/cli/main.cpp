// The `mhla` program: see program.cpp for the commands.
#include "cli/commands.hpp"
#include "cli/streams/standard_streams.hpp"

int main(int argc, char** argv) {
  mhla::cli::prepare_descriptors();
  mhla::cli::StandardStreams streams;
  return streams.finish(mhla::cli::run_program(argc, argv));
}
