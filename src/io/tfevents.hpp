// TensorBoard event files: a sequence of records, each a length, an Event message and the checksums of both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "io/output_file.hpp"

namespace mhla::io {

class EventFile {
 public:
  // A new file in `folder`. Scalars of earlier files from `first_step` on no longer count: they are of a run that was
  // interrupted and goes on from there.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step);

  void scalars(std::int64_t step, std::span<const std::pair<std::string, double>> values);

 private:
  void record(const std::string& event);

  OutputFile file_;
};

}  // namespace mhla::io
