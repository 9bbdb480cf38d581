// States of a language model as bytes: a safetensors file with the tensors of all layers, `layers.<i>.<name>`, and what
// model they belong to in its metadata, followed by the CRC-32C of all that.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "models/lm/lm.hpp"

namespace mhla::models {

std::vector<std::byte> save_state(const Lm& model, const LmState& state);

// The state on the model's device. Throws an Error where the bytes are damaged, or of another model.
LmState restore_state(const Lm& model, std::span<const std::byte> bytes);

// Of the options that matter and of a sample of every parameter's values, eight hexadecimal digits. The same on every
// device.
std::string fingerprint(const Lm& model);

}  // namespace mhla::models
