// Encoding, checking and choosing checkpoints.
#include "train/checkpoint.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/crc32c.hpp"
#include "io/file.hpp"
#include "io/safetensors.hpp"
#include "mhla/types.hpp"
#include "tensor_io/tensors.hpp"

namespace mhla::train {
namespace fs = std::filesystem;
namespace {

constexpr const char* kNotes = "mhla.checkpoint";
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".safetensors";

std::uint32_t checksum(const std::map<std::string, io::SafeTensor>& tensors) {
  std::uint32_t crc = 0;
  for (const auto& [name, tensor] : tensors) crc = io::crc32c(tensor.data, crc);
  return crc;
}

}  // namespace

void save_checkpoint(const fs::path& path, const Checkpoint& checkpoint) {
  NamedTensors held;
  for (const auto& [name, tensor] : checkpoint.tensors) held.emplace(name, tensor.detach().cpu().contiguous());
  std::map<std::string, io::SafeTensor> stored;
  for (const auto& [name, tensor] : held) stored.emplace(name, io::safe_tensor(tensor, name));
  const io::Json notes = {{"step", checkpoint.step}, {"crc32c", checksum(stored)}, {"notes", checkpoint.notes}};
  io::write_durably(path, io::encode_safetensors(stored, {{kNotes, notes.dump()}}));
}

Checkpoint load_checkpoint(const fs::path& path) {
  const io::SafeTensors file = io::SafeTensors::load(path);
  const auto found = file.metadata().find(kNotes);
  if (found == file.metadata().end())
    throw Error(fmt::format("{}: not a checkpoint: metadata \"{}\" is missing", path.string(), kNotes));
  const io::Json notes = io::parse_json(found->second, path.string() + ": " + kNotes);
  Checkpoint checkpoint;
  try {
    if (notes.at("crc32c").get<std::uint32_t>() != checksum(file.tensors()))
      throw Error(fmt::format("{}: the data do not match their checksum", path.string()));
    checkpoint.step = notes.at("step").get<std::int64_t>();
    checkpoint.notes = notes.at("notes");
  } catch (const io::Json::exception& error) {
    throw Error(fmt::format("{}: {}: {}", path.string(), kNotes, error.what()));
  }
  for (const auto& [name, tensor] : file.tensors()) checkpoint.tensors.emplace(name, io::to_torch(file, name));
  return checkpoint;
}

void CheckpointFolder::save(const Checkpoint& checkpoint, std::int64_t keep) const {
  save_checkpoint(folder_ / fmt::format("{}{:08}{}", kPrefix, checkpoint.step, kSuffix), checkpoint);
  const auto files = list();
  for (std::size_t i = static_cast<std::size_t>(std::max<std::int64_t>(keep, 1)); i < files.size(); ++i) {
    std::error_code ignored;
    fs::remove(files[i], ignored);
  }
}

std::vector<fs::path> CheckpointFolder::list() const {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix)) files.push_back(entry.path());
  }
  std::ranges::sort(files, std::greater<>());
  return files;
}

std::optional<Checkpoint> CheckpointFolder::newest(const std::function<void(const std::string&)>& report) const {
  io::remove_unfinished(folder_);
  const auto files = list();
  for (const fs::path& path : files) try {
      return load_checkpoint(path);
    } catch (const Error& error) {
      report(fmt::format("damaged checkpoint left out: {}", error.what()));
    }
  if (!files.empty())
    throw Error(fmt::format("{}: none of the {} checkpoints can be read; `--resume none` starts anew", folder_.string(),
                            files.size()));
  return std::nullopt;
}

void CheckpointFolder::remove_all() const {
  io::remove_unfinished(folder_);
  for (const fs::path& path : list()) fs::remove(path);
}

void restore(const NamedTensors& target, const NamedTensors& stored, const std::string& prefix,
             const std::string& source) {
  std::vector<std::string> wrong;
  for (const auto& [name, tensor] : target) {
    const auto found = stored.find(prefix + name);
    if (found == stored.end())
      wrong.push_back(fmt::format("{}{} is missing", prefix, name));
    else if (found->second.sizes() != tensor.sizes())
      wrong.push_back(fmt::format("{}{} is of shape [{}], here [{}]", prefix, name,
                                  fmt::join(found->second.sizes(), ", "), fmt::join(tensor.sizes(), ", ")));
  }
  for (const auto& [name, tensor] : stored)
    if (name.starts_with(prefix) && !target.contains(name.substr(prefix.size())))
      wrong.push_back(fmt::format("{} is not part of this run", name));
  if (!wrong.empty()) throw Error(fmt::format("{}: {}", source, fmt::join(wrong, "; ")));
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : target) at::Tensor(tensor).copy_(stored.at(prefix + name));
}

}  // namespace mhla::train
