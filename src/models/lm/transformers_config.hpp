// config.json of transformers as options of a language model.
#pragma once

#include <string>

#include "io/json.hpp"
#include "models/lm/lm_options.hpp"

namespace mhla::models {

// "llama" and "mistral", and the authors' "gla", whose layers are MHLA unless it says otherwise. `source` begins
// errors. Throws an Error that names what this library cannot do.
LmOptions lm_options_of_transformers(const io::Json& config, const std::string& source);

}  // namespace mhla::models
