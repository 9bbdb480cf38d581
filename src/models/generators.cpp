// The registry, asked for generators.
#include "models/generators.hpp"

#include "models/registry.hpp"

namespace mhla::models {

std::vector<std::string> generator_names() { return model_names("generate"); }

std::shared_ptr<Generator> make_generator(const GeneratorOptions& options) {
  return std::static_pointer_cast<Generator>(make_model(options, "generate"));
}

}  // namespace mhla::models
