// The normalisation maps inside a SentencePiece model: double-array tries that the library walks without looking
// whether a step leaves them. A damaged one would crash it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace mhla::text {

// Throws an Error that begins with `name` if a map of the model has a step that leads out of it.
void check_normalization_maps(std::span<const std::byte> model, const std::string& name);

}  // namespace mhla::text
