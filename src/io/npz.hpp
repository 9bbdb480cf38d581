// numpy's .npz out: arrays as .npy files in a zip archive, without compression, written in one pass. np.load reads it,
// and so does the evaluator of ADM, which expects pictures as arr_0, uint8 [N, H, W, 3].
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/zip.hpp"

namespace mhla::io {

class NpzWriter {
 public:
  enum class Type : std::uint8_t { uint8, int64 };

  explicit NpzWriter(const std::filesystem::path& path, std::uint64_t zip64_from = ZipWriter::kZip64From)
      : zip_(path, zip64_from) {}

  // The elements of an array follow with write(), in C order, in pieces of any size.
  void begin(const std::string& name, Type type, const std::vector<std::int64_t>& shape);
  void write(std::span<const std::uint8_t> elements) { zip_.write(std::as_bytes(elements)); }
  void write(std::span<const std::int64_t> elements) { zip_.write(std::as_bytes(elements)); }
  void finish() { zip_.finish(); }

 private:
  ZipWriter zip_;
};

}  // namespace mhla::io
