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
constexpr const char* kChecksum = "mhla.crc32c";
constexpr std::string_view kNoChecksum = "00000000";
constexpr int kFormat = 2;
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".safetensors";

// The digits of the checksum in the bytes of a file; empty where there are none. The first place is the right one:
// inside the other texts of the header quotes are escaped, and the tensors come later.
std::span<std::byte> checksum_digits(std::span<std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string key = fmt::format("\"{}\":\"", kChecksum);
  const std::size_t found = text.find(key);
  if (found == std::string_view::npos || bytes.size() - found - key.size() < kNoChecksum.size()) return {};
  return bytes.subspan(found + key.size(), kNoChecksum.size());
}

// Of the whole file, with zeros for these digits.
std::string checksum(std::span<std::byte> bytes, std::span<std::byte> digits) {
  std::ranges::copy(std::as_bytes(std::span(kNoChecksum)), digits.begin());
  return fmt::format("{:08x}", io::crc32c(bytes));
}

io::SafeTensors load_checked(const fs::path& path) {
  std::vector<std::byte> bytes = io::read_file(path);
  const std::span<std::byte> digits = checksum_digits(bytes);
  if (digits.empty())
    throw Error(fmt::format("{}: not a checkpoint of this version, or damaged: metadata \"{}\" is missing",
                            path.string(), kChecksum));
  const std::string stored(reinterpret_cast<const char*>(digits.data()), digits.size());
  if (checksum(bytes, digits) != stored)
    throw Error(fmt::format("{}: the file does not match its checksum", path.string()));
  return io::SafeTensors::parse(std::move(bytes), path.string());
}

void read_notes(const std::string& text, const std::string& where, Checkpoint& checkpoint) {
  const io::Json notes = io::parse_json(text, where);
  try {
    if (const auto format = notes.at("format").get<std::int64_t>(); format != kFormat)
      throw Error(fmt::format("{}: format {}; this version reads {}", where, format, kFormat));
    notes.at("step").get_to(checkpoint.step);
    checkpoint.settings = notes.at("settings");
    if (!notes.at("best").is_null()) checkpoint.best = notes.at("best").get<double>();
    notes.at("seconds").get_to(checkpoint.seconds);
    notes.at("processes").get_to(checkpoint.processes);
  } catch (const io::Json::exception& error) {
    throw Error(fmt::format("{}: {}", where, error.what()));
  }
  if (!notes.at("step").is_number_unsigned() || !checkpoint.settings.is_object())
    throw Error(fmt::format("{}: step is {} and settings are of type {}; they must be a count and an object", where,
                            notes.at("step").dump(), checkpoint.settings.type_name()));
}

}  // namespace

void seal(std::span<std::byte> file) {
  const std::span<std::byte> digits = checksum_digits(file);
  if (digits.empty()) return;
  const std::string right = checksum(file, digits);
  std::ranges::copy(std::as_bytes(std::span(right)), digits.begin());
}

void save_checkpoint(const fs::path& path, const Checkpoint& checkpoint) {
  NamedTensors held;
  for (const auto& [name, tensor] : checkpoint.tensors) held.emplace(name, tensor.detach().cpu().contiguous());
  std::map<std::string, io::SafeTensor> stored;
  for (const auto& [name, tensor] : held) stored.emplace(name, io::safe_tensor(tensor, name));
  const io::Json notes = {{"format", kFormat},
                          {"step", checkpoint.step},
                          {"settings", checkpoint.settings},
                          {"best", checkpoint.best ? io::Json(*checkpoint.best) : io::Json(nullptr)},
                          {"seconds", checkpoint.seconds},
                          {"processes", checkpoint.processes}};
  auto bytes = io::encode_safetensors(stored, {{kNotes, notes.dump()}, {kChecksum, std::string(kNoChecksum)}});
  seal(bytes);
  io::write_durably(path, bytes);
}

Checkpoint load_checkpoint(const fs::path& path) {
  const io::SafeTensors file = load_checked(path);
  const auto found = file.metadata().find(kNotes);
  if (found == file.metadata().end())
    throw Error(fmt::format("{}: not a checkpoint: metadata \"{}\" is missing", path.string(), kNotes));
  Checkpoint checkpoint;
  read_notes(found->second, path.string() + ": " + kNotes, checkpoint);
  for (const auto& [name, tensor] : file.tensors()) checkpoint.tensors.emplace(name, io::to_torch(file, name));
  return checkpoint;
}

void CheckpointFolder::save(const Checkpoint& checkpoint, std::int64_t keep) const {
  const fs::path saved = folder_ / fmt::format("{}{:08}{}", kPrefix, checkpoint.step, kSuffix);
  save_checkpoint(saved, checkpoint);
  std::int64_t kept = 0;
  for (const fs::path& file : list()) {
    std::error_code ignored;
    if (file > saved || ++kept > std::max<std::int64_t>(keep, 1)) fs::remove(file, ignored);
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
    } catch (const std::exception& error) {
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
    else if (found->second.scalar_type() != tensor.scalar_type())
      wrong.push_back(fmt::format("{}{} is of type {}, here {}", prefix, name,
                                  c10::toString(found->second.scalar_type()), c10::toString(tensor.scalar_type())));
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
