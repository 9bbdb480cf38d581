// Runs the program, or any command of the shell, and keeps what it said. Test programs that run it define
// MHLA_PROGRAM.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace mhla::testing {

struct Finished {
  int exit_code = -1;
  std::string out;  // standard output; with `2>&1` in the command also the error stream
};

inline Finished run_command(const std::string& command) {
  Finished run;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  std::array<char, 4096> buffer{};
  for (std::size_t count = 0; (count = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    run.out.append(buffer.data(), count);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) run.exit_code = WEXITSTATUS(status);
  return run;
}

#ifdef MHLA_PROGRAM
inline Finished run_mhla(const std::string& arguments) {
  return run_command(std::string("'") + MHLA_PROGRAM + "' " + arguments);
}
#endif

}  // namespace mhla::testing
