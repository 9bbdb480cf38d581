// Image generators by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/base/generator.hpp"

namespace mhla::models {

std::vector<std::string> generator_names();  // dit_s2, ..., dig_s2, ...

// Initial values come from torch's generator (torch::manual_seed). Throws an Error that names the wrong option.
std::shared_ptr<Generator> make_generator(const GeneratorOptions& options);

}  // namespace mhla::models
