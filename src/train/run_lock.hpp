// One training per folder. The file `lock` in it says who trains and is locked as long as this lives. The system gives
// the lock back however a process ends: the file of one that was killed is no obstacle.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "io/output_file.hpp"

namespace mhla::train {

class RunLock {
 public:
  // Throws an Error that names the other process. `report` hears of file systems that have no locks.
  RunLock(const std::filesystem::path& folder, const std::function<void(const std::string&)>& report);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  io::OutputFile file_;
};

}  // namespace mhla::train
