// The safetensors format: an 8-byte little-endian header length, a JSON header, then the bytes of all tensors.
//
//   {"__metadata__": {text: text}, name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//
// The reader accepts nothing that the format does not: everything is checked before a tensor can be reached, and an
// error names the file, the tensor and the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mhla::io {

struct SafeTensor {
  std::string dtype;  // as spelled in the file: "F32", "BF16", ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;  // little-endian, row-major, no alignment promised
};

class SafeTensors {
 public:
  static constexpr std::size_t kMaxHeaderBytes = 100'000'000;

  static SafeTensors load(const std::filesystem::path& path);
  // The same without reading the tensors: their pages come from the file as they are looked at. The file must not be
  // cut off meanwhile.
  static SafeTensors map(const std::filesystem::path& path);
  static SafeTensors parse(std::vector<std::byte> bytes, std::string source);  // `source` names the file in errors

  const std::string& source() const { return source_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::map<std::string, SafeTensor>& tensors() const { return tensors_; }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  const SafeTensor& at(const std::string& name) const;  // throws an Error that names the file and the tensor

  // Of a mapped file: the memory that the tensor takes is free again until it is looked at. Otherwise nothing happens.
  void let_go(const std::string& name) const;

 private:
  SafeTensors(std::span<const std::byte> bytes, std::shared_ptr<const void> owner, std::string source);
  void read_header(std::string_view header, std::span<const std::byte> data);
  void check_offsets(std::size_t data_bytes) const;

  std::string source_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;  // of the bytes
  bool mapped_ = false;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, SafeTensor> tensors_;
};

// Bytes of one element, 0 for a dtype the format does not have.
std::size_t safetensors_element_size(std::string_view dtype);

// The bytes of a file with these tensors, in the order of their names.
std::vector<std::byte> encode_safetensors(const std::map<std::string, SafeTensor>& tensors,
                                          const std::map<std::string, std::string>& metadata = {});

}  // namespace mhla::io
