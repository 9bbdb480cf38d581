// Checkpoints: one safetensors file each, with everything a run needs to go on as if it had never stopped.
//
//   model/NAME, optimizer/NAME, ema/NAME, random/NAME     tensors
//   metadata "mhla.checkpoint"                            JSON: format, step, settings of the run, best score, ...
//   metadata "mhla.crc32c"                                checksum of the whole file, in which its digits are zeros
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "io/json.hpp"
#include "train/parameters.hpp"

namespace mhla::train {

struct Checkpoint {
  std::int64_t step = 0;  // steps done
  io::Json settings = io::Json::object();
  std::optional<double> best = std::nullopt;  // score
  double seconds = 0.0;                       // of training
  std::int64_t processes = 1;
  NamedTensors tensors{};
};

void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);

// Puts the right checksum into the bytes of a file that has the eight digits of one.
void seal(std::span<std::byte> file);

// Throws an Error with file and reason where the file is damaged in any way.
Checkpoint load_checkpoint(const std::filesystem::path& path);

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Writes step-NNNNNNNN.safetensors, then removes all but the newest `keep`. Those of later steps, which the run did
  // not go on from, are removed too.
  void save(const Checkpoint& checkpoint, std::int64_t keep) const;

  std::vector<std::filesystem::path> list() const;  // newest first

  // The newest that is whole; damaged ones are reported. Nothing where there are none at all, an Error where none of
  // those there can be read.
  std::optional<Checkpoint> newest(const std::function<void(const std::string&)>& report) const;

  void remove_all() const;

 private:
  std::filesystem::path folder_;
};

// Copies stored values into the tensors of a run; an Error lists all that are missing, extra or of another shape
// or type.
void restore(const NamedTensors& target, const NamedTensors& stored, const std::string& prefix,
             const std::string& source);

}  // namespace mhla::train
