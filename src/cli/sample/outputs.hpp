// Files of drawn pictures. They are opened before the first picture is drawn, so that one that cannot be written is
// known at once, and appear when they are complete.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/sample/job.hpp"
#include "io/new_file.hpp"
#include "io/npz.hpp"
#include "io/png.hpp"

namespace mhla::cli {

class SampleOutputs {
 public:
  // Throws a UsageError where pictures do not fit into a file, or the file not on the disk.
  SampleOutputs(const SampleOptions& options, const SampleJob& job);

  bool animated() const { return animation_.has_value(); }
  void take_step(std::int64_t picture, std::int64_t step, const at::Tensor& pixels);  // uint8 [H, W, 3]
  void take(std::int64_t begin, const at::Tensor& pixels);  // uint8 [N, H, W, 3] of pictures begin, begin + 1, ...

  using Written = std::vector<std::pair<std::string, std::string>>;  // files, and what is in them
  Written finish();

 private:
  void check_sheet(const char* option) const;
  void check_npz() const;
  void write_alone(std::int64_t picture, const at::Tensor& pixels) const;
  io::PngTexts texts_of(const char* option, const std::string& file) const;
  void finish_animation(const io::Image& sheet);
  void finish_npz();

  const SampleOptions& options_;
  const SampleJob& job_;
  std::int64_t columns_;
  std::optional<io::NewFile> sheet_, animation_;
  std::optional<io::NpzWriter> npz_;
  at::Tensor pictures_;  // uint8 [N, H, W, 3], for sheet and animation
  at::Tensor frames_;    // uint8 [steps, N, H, W, 3], for the animation
};

}  // namespace mhla::cli
