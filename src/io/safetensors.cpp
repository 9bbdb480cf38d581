// Validation of safetensors headers, and the encoder.
#include "io/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "io/file.hpp"
#include "io/json.hpp"
#include "io/mapped_file.hpp"
#include "mhla/types.hpp"

namespace mhla::io {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::string_view kMetadata = "__metadata__";

struct DTypeSize {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array kDTypes = {
    DTypeSize{"BOOL", 1}, DTypeSize{"U8", 1},      DTypeSize{"I8", 1},   DTypeSize{"F8_E4M3", 1},
    DTypeSize{"F16", 2},  DTypeSize{"F8_E5M2", 1}, DTypeSize{"BF16", 2}, DTypeSize{"I16", 2},
    DTypeSize{"U16", 2},  DTypeSize{"I32", 4},     DTypeSize{"U32", 4},  DTypeSize{"F32", 4},
    DTypeSize{"I64", 8},  DTypeSize{"U64", 8},     DTypeSize{"F64", 8},  DTypeSize{"C64", 8},
};

// A nonnegative integer that fits std::int64_t.
std::int64_t read_count(const Json& value, const std::string& where) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
    throw Error(fmt::format("{} has {}, which is not a nonnegative 64-bit integer", where, value.dump()));
  return value.get<std::int64_t>();
}

const Json& member(const Json& entry, const char* key, const std::string& where) {
  const auto found = entry.find(key);
  if (found == entry.end()) throw Error(fmt::format("{}: \"{}\" is missing", where, key));
  return *found;
}

std::size_t tensor_bytes(const SafeTensor& tensor, std::size_t element_bytes, const std::string& where) {
  auto strides = static_cast<std::int64_t>(element_bytes);  // of which none may overflow, beside a zero either
  for (const std::int64_t extent : tensor.shape)
    if (__builtin_mul_overflow(strides, std::max<std::int64_t>(extent, 1), &strides))
      throw Error(fmt::format("{}: shape [{}] overflows", where, fmt::join(tensor.shape, ", ")));
  return std::ranges::count(tensor.shape, 0) > 0 ? 0 : static_cast<std::size_t>(strides);
}

// `where` begins every message: file and tensor.
SafeTensor read_tensor(const Json& entry, std::span<const std::byte> data, const std::string& where) {
  if (!entry.is_object()) throw Error(fmt::format("{}: entry is {}, not an object", where, entry.type_name()));
  for (const auto& item : entry.items())
    if (item.key() != "dtype" && item.key() != "shape" && item.key() != "data_offsets")
      throw Error(fmt::format("{}: unknown key \"{}\"", where, item.key()));

  SafeTensor tensor;
  const Json& dtype = member(entry, "dtype", where);
  if (!dtype.is_string()) throw Error(fmt::format("{}: dtype is {}, not a string", where, dtype.type_name()));
  tensor.dtype = dtype.get<std::string>();
  const std::size_t element_bytes = safetensors_element_size(tensor.dtype);
  if (element_bytes == 0) throw Error(fmt::format("{}: dtype \"{}\" is unknown", where, tensor.dtype));

  const Json& shape = member(entry, "shape", where);
  if (!shape.is_array()) throw Error(fmt::format("{}: shape is {}, not an array", where, shape.type_name()));
  for (const Json& extent : shape) tensor.shape.push_back(read_count(extent, where + ": shape"));
  const std::size_t bytes = tensor_bytes(tensor, element_bytes, where);

  const Json& offsets = member(entry, "data_offsets", where);
  if (!offsets.is_array() || offsets.size() != 2)
    throw Error(fmt::format("{}: data_offsets is {}, not [begin, end]", where, offsets.dump()));
  const auto begin = static_cast<std::size_t>(read_count(offsets[0], where + ": data_offsets"));
  const auto end = static_cast<std::size_t>(read_count(offsets[1], where + ": data_offsets"));
  if (begin > end || end > data.size())
    throw Error(
        fmt::format("{}: data_offsets [{}, {}] do not lie within the {} data bytes", where, begin, end, data.size()));
  if (end - begin != bytes)
    throw Error(fmt::format("{}: data_offsets span {} bytes, but {} of shape [{}] has {}", where, end - begin,
                            tensor.dtype, fmt::join(tensor.shape, ", "), bytes));
  tensor.data = data.subspan(begin, end - begin);
  return tensor;
}

// The length of the header of a file that begins with these bytes, as far as they tell.
std::size_t check_beginning(std::span<const std::byte> bytes, std::size_t file_bytes, const std::string& source) {
  if (bytes.size() < kLengthBytes)
    throw Error(fmt::format("{}: no safetensors file: {} bytes are too few for a header length", source, file_bytes));
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  if (length > SafeTensors::kMaxHeaderBytes)
    throw Error(fmt::format("{}: no safetensors file, or damaged: header of {} bytes; at most {} are allowed", source,
                            length, SafeTensors::kMaxHeaderBytes));
  if (length > file_bytes - kLengthBytes)
    throw Error(fmt::format("{}: no safetensors file, or cut off: header of {} bytes in a file of {}", source, length,
                            file_bytes));
  if (length == 0 || bytes[kLengthBytes] != std::byte{'{'})
    throw Error(fmt::format("{}: no safetensors file: its header does not begin with '{{'", source));
  return length;
}

}  // namespace

std::size_t safetensors_element_size(std::string_view dtype) {
  const auto* const found = std::ranges::find(kDTypes, dtype, &DTypeSize::name);
  return found == kDTypes.end() ? 0 : found->bytes;
}

SafeTensors SafeTensors::load(const std::filesystem::path& path) {
  const std::size_t bytes = size_of_file(path);
  check_beginning(read_beginning(path, kLengthBytes + 1), bytes, path.string());
  return parse(read_file(path), path.string());
}

SafeTensors SafeTensors::map(const std::filesystem::path& path) {
  MappedFile file(path);
  SafeTensors tensors(file.bytes, file.owner, path.string());
  tensors.mapped_ = true;
  return tensors;
}

SafeTensors SafeTensors::parse(std::vector<std::byte> bytes, std::string source) {
  const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {*owner, owner, std::move(source)};
}

SafeTensors::SafeTensors(std::span<const std::byte> bytes, std::shared_ptr<const void> owner, std::string source)
    : source_(std::move(source)), bytes_(bytes), owner_(std::move(owner)) {
  const std::size_t length = check_beginning(bytes_, bytes_.size(), source_);
  const std::string_view header(reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes, length);
  const std::span<const std::byte> data = bytes_.subspan(kLengthBytes + length);
  read_header(header, data);
  check_offsets(data.size());
}

void SafeTensors::read_header(std::string_view header, std::span<const std::byte> data) {
  const Json root = parse_json(header, source_ + ": header", 4);
  for (const auto& item : root.items()) {
    if (item.key() != kMetadata) {
      tensors_.emplace(item.key(),
                       read_tensor(item.value(), data, fmt::format("{}: tensor \"{}\"", source_, item.key())));
      continue;
    }
    if (!item.value().is_object()) throw Error(fmt::format("{}: {} is not an object", source_, kMetadata));
    for (const auto& entry : item.value().items()) {
      if (!entry.value().is_string())
        throw Error(fmt::format("{}: {} \"{}\" is {}, not a string", source_, kMetadata, entry.key(),
                                entry.value().type_name()));
      metadata_.emplace(entry.key(), entry.value().get<std::string>());
    }
  }
}

// The tensors cover the data exactly: no gap, no overlap, nothing left over.
void SafeTensors::check_offsets(std::size_t data_bytes) const {
  struct Place {
    std::size_t begin, end;
    const std::string* name;
  };
  std::vector<Place> order;
  order.reserve(tensors_.size());
  const std::byte* const start = bytes_.data() + (bytes_.size() - data_bytes);
  for (const auto& [name, tensor] : tensors_) {
    const auto begin = static_cast<std::size_t>(tensor.data.data() - start);
    order.push_back({begin, begin + tensor.data.size(), &name});
  }
  std::ranges::sort(order, {}, [](const Place& place) { return std::pair(place.begin, place.end); });
  std::size_t expected = 0;
  for (const auto& [begin, end, name] : order) {
    if (begin != expected)
      throw Error(fmt::format("{}: tensor \"{}\": data begins at {}, {} the {} bytes before it", source_, *name, begin,
                              begin < expected ? "inside" : "leaving a gap after", expected));
    expected = end;
  }
  if (expected != data_bytes)
    throw Error(fmt::format("{}: {} bytes after the last tensor", source_, data_bytes - expected));
}

const SafeTensor& SafeTensors::at(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw Error(fmt::format("{}: tensor \"{}\" is missing", source_, name));
  return found->second;
}

void SafeTensors::let_go(const std::string& name) const {
  if (mapped_) let_go_of_mapped(at(name).data);
}

std::vector<std::byte> encode_safetensors(const std::map<std::string, SafeTensor>& tensors,
                                          const std::map<std::string, std::string>& metadata) {
  Json root = Json::object();
  if (!metadata.empty()) root[std::string(kMetadata)] = metadata;
  std::size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t element_bytes = safetensors_element_size(tensor.dtype);
    const std::string where = fmt::format("tensor \"{}\"", name);
    if (element_bytes == 0) throw Error(fmt::format("{}: dtype \"{}\" is unknown", where, tensor.dtype));
    if (tensor_bytes(tensor, element_bytes, where) != tensor.data.size())
      throw Error(fmt::format("{}: {} data bytes do not fit its shape", where, tensor.data.size()));
    root[name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
  }
  std::string header = root.dump();
  header.append((8 - header.size() % 8) % 8, ' ');
  std::vector<std::byte> bytes;
  bytes.reserve(kLengthBytes + header.size() + offset);
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    bytes.push_back(static_cast<std::byte>(header.size() >> (8 * i) & 0xFFU));
  std::ranges::copy(std::as_bytes(std::span(header)), std::back_inserter(bytes));
  for (const auto& [name, tensor] : tensors) bytes.insert(bytes.end(), tensor.data.begin(), tensor.data.end());
  return bytes;
}

}  // namespace mhla::io
