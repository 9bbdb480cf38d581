// Files of tensors: what is accepted has data of the size that shape and dtype say, and can be written and read again.
#include "io/safetensors.hpp"

#include "support/target.hpp"

using namespace mhla;

fuzz::Inputs fuzz::seeds() {
  const Bytes data(48, std::byte{1});
  const auto part = [&](std::size_t bytes) { return std::span<const std::byte>(data).first(bytes); };
  return {io::encode_safetensors({{"a", {"F32", {2, 3}, part(24)}}, {"b.c", {"BF16", {4}, part(8)}}}, {{"k", "v"}}),
          io::encode_safetensors({{"scalar", {"F64", {}, part(8)}}, {"empty", {"I64", {0, 5}, part(0)}}}),
          io::encode_safetensors({}, {{"mhla.config", R"({"width": 64})"}})};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::runs_or_names({"the-file"}, [&] {
    const auto file = io::SafeTensors::parse(fuzz::copy_of(fuzz::bytes_of(data, size)), "the-file");
    for (const auto& [name, tensor] : file.tensors()) {
      std::size_t bytes = io::safetensors_element_size(tensor.dtype);
      fuzz::expect(bytes > 0, "an unknown dtype was accepted");
      for (const std::int64_t length : tensor.shape) bytes *= static_cast<std::size_t>(length);
      fuzz::expect(bytes == tensor.data.size(), "data of another size than shape and dtype say");
    }
    const auto again = io::SafeTensors::parse(io::encode_safetensors(file.tensors(), file.metadata()), "again");
    fuzz::expect(again.metadata() == file.metadata(), "metadata changed on the way");
    fuzz::expect(again.tensors().size() == file.tensors().size(), "tensors were lost on the way");
    for (const auto& [name, tensor] : file.tensors()) {
      const io::SafeTensor& other = again.at(name);
      fuzz::expect(other.dtype == tensor.dtype && other.shape == tensor.shape &&
                       std::equal(other.data.begin(), other.data.end(), tensor.data.begin(), tensor.data.end()),
                   "a tensor changed on the way");
    }
  });
  return 0;
}
