// Checkpoints: one safetensors file each, with everything a run needs to go on as if it had never stopped.
//
//   model/NAME, optimizer/NAME, ema/NAME, random/NAME     tensors
//   metadata "mhla.checkpoint"                            JSON: step, settings of the run, best score, checksum
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "io/json.hpp"
#include "train/parameters.hpp"

namespace mhla::train {

struct Checkpoint {
  std::int64_t step = 0;  // steps done
  io::Json notes;         // what the trainer wants to remember
  NamedTensors tensors;
};

void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);

// Throws an Error with file and reason where the file is damaged in any way.
Checkpoint load_checkpoint(const std::filesystem::path& path);

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Writes step-NNNNNNNN.safetensors, then removes all but the newest `keep`.
  void save(const Checkpoint& checkpoint, std::int64_t keep) const;

  std::vector<std::filesystem::path> list() const;  // newest first

  // The newest that is whole; damaged ones are reported. Nothing where there are none at all, an Error where none of
  // those there can be read.
  std::optional<Checkpoint> newest(const std::function<void(const std::string&)>& report) const;

  void remove_all() const;

 private:
  std::filesystem::path folder_;
};

// Copies stored values into the tensors of a run; an Error lists all that are missing, extra or of another shape.
void restore(const NamedTensors& target, const NamedTensors& stored, const std::string& prefix,
             const std::string& source);

}  // namespace mhla::train
