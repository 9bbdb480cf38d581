// NumPy's file format for one array: a magic text, a version, a header with type, order and shape, then the numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mhla::io {

struct NpyArray {
  std::string dtype;  // as safetensors spells it: "F32", "I64", ...
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;  // inside of the bytes that were parsed; row-major, no alignment promised
};

// Little-endian arrays in C order. `name` begins every error message.
NpyArray parse_npy(std::span<const std::byte> bytes, std::string_view name);

}  // namespace mhla::io
