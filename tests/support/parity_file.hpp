// Reads float32 tensors of the parity cases in tests/parity. Those files are ours and well formed: no checks beyond the
// name.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace mhla {

class ParityFile {
 public:
  explicit ParityFile(const std::string& name) {
    std::ifstream file(std::string(MHLA_TEST_DATA) + "/" + name + ".safetensors", std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    std::uint64_t header_size = 0;
    if (bytes_.size() < sizeof header_size) throw std::runtime_error(name + " is not a parity case");
    std::memcpy(&header_size, bytes_.data(), sizeof header_size);
    data_ = sizeof header_size + header_size;
    header_ = std::string(bytes_.data() + sizeof header_size, header_size);
  }

  std::vector<float> tensor(const std::string& name) const {
    const std::size_t entry = header_.find("\"" + name + "\"");
    if (entry == std::string::npos) throw std::runtime_error("no tensor " + name);
    const std::string key = "\"data_offsets\":[";
    const std::size_t offsets = header_.find(key, entry) + key.size();
    const std::size_t begin = std::stoull(header_.substr(offsets));
    const std::size_t end = std::stoull(header_.substr(header_.find(',', offsets) + 1));
    std::vector<float> values((end - begin) / sizeof(float));
    std::memcpy(values.data(), bytes_.data() + data_ + begin, end - begin);
    return values;
  }

 private:
  std::vector<char> bytes_;
  std::string header_;
  std::size_t data_ = 0;
};

}  // namespace mhla
