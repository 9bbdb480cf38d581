// Sizes of the toy family.
#pragma once

#include <string>
#include <vector>

#include "io/json.hpp"

namespace mhla::models::testing {

struct ToyConfig {
  std::string model = "toy_small";  // or toy_wide
  std::int64_t tokens = 12, blocks = 3;

  std::int64_t width() const { return model == "toy_wide" ? 16 : 8; }
};

inline std::vector<std::string> toy_names() { return {"toy_small", "toy_wide"}; }

inline void to_json(io::Json& json, const ToyConfig& config) {
  json = {{"model", config.model}, {"tokens", config.tokens}, {"blocks", config.blocks}};
}
inline void from_json(const io::Json& json, ToyConfig& config) {
  config = {};
  config.model = json.value("model", config.model);
  config.tokens = json.value("tokens", config.tokens);
  config.blocks = json.value("blocks", config.blocks);
}

}  // namespace mhla::models::testing
