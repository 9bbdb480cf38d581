// Conversion between stored tensors and torch tensors.
#include "tensor_io/tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "io/file.hpp"
#include "mhla/types.hpp"

namespace mhla::io {
namespace {

constexpr std::array<std::pair<std::string_view, torch::ScalarType>, 10> kTypes = {{{"BOOL", torch::kBool},
                                                                                    {"U8", torch::kUInt8},
                                                                                    {"I8", torch::kInt8},
                                                                                    {"I16", torch::kInt16},
                                                                                    {"I32", torch::kInt32},
                                                                                    {"I64", torch::kInt64},
                                                                                    {"F16", torch::kFloat16},
                                                                                    {"BF16", torch::kBFloat16},
                                                                                    {"F32", torch::kFloat32},
                                                                                    {"F64", torch::kFloat64}}};

}  // namespace

NamedTensors named_tensors(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace(item.key(), item.value().detach());
  for (const auto& item : module.named_buffers()) tensors.emplace(item.key(), item.value().detach());
  return tensors;
}

torch::ScalarType torch_type(const std::string& dtype, const std::string& where) {
  const auto* const found = std::ranges::find_if(kTypes, [&](const auto& entry) { return entry.first == dtype; });
  if (found == kTypes.end()) throw Error(fmt::format("{}: dtype {} cannot be used here", where, dtype));
  return found->second;
}

torch::Tensor to_torch(const SafeTensors& file, const std::string& name) {
  const SafeTensor& stored = file.at(name);
  torch::Tensor tensor =
      torch::empty(stored.shape, torch_type(stored.dtype, fmt::format("{}: tensor \"{}\"", file.source(), name)));
  if (!stored.data.empty()) std::memcpy(tensor.data_ptr(), stored.data.data(), stored.data.size());
  return tensor;
}

SafeTensor safe_tensor(const torch::Tensor& plain, const std::string& name) {
  const auto* const found =
      std::ranges::find_if(kTypes, [&](const auto& entry) { return entry.second == plain.scalar_type(); });
  if (found == kTypes.end()) throw Error(fmt::format("tensor \"{}\": its type has no place in safetensors", name));
  return {std::string(found->first),
          plain.sizes().vec(),
          {static_cast<const std::byte*>(plain.data_ptr()), plain.nbytes()}};
}

void save_tensors(const std::filesystem::path& path, const NamedTensors& tensors,
                  const std::map<std::string, std::string>& metadata) {
  NamedTensors held;
  std::map<std::string, SafeTensor> entries;
  for (const auto& [name, tensor] : tensors) {
    held[name] = tensor.detach().cpu().contiguous();
    entries[name] = safe_tensor(held[name], name);
  }
  write_file(path, encode_safetensors(entries, metadata));
}

}  // namespace mhla::io
