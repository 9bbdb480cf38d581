// For libFuzzer: writes the seeds of a target as files into the folder that MHLA_FUZZ_SEEDS names.
#include <unistd.h>

#include <cstdio>

#include "support/target.hpp"

namespace mhla::fuzz {
long File::id() { return ::getpid(); }
}  // namespace mhla::fuzz

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* folder = std::getenv("MHLA_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  std::size_t number = 0;
  for (const mhla::fuzz::Bytes& seed : mhla::fuzz::seeds()) {
    const std::string path = std::string(folder) + "/seed-" + std::to_string(number++);
    if (std::FILE* file = std::fopen(path.c_str(), "wb"); file != nullptr) {
      std::fwrite(seed.data(), 1, seed.size(), file);
      std::fclose(file);
    }
  }
  return 0;
}
