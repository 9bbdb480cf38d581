// The memory of a decoding state to and from bytes (core/saved_state.hpp). All pointers are to host memory.
#pragma once

#include <cstddef>
#include <vector>

#include "core/saved_state.hpp"

namespace mhla {

// `mixing` is as DecodeArgs has it.
std::vector<std::byte> save_decode(const DecodeConfig& config, const void* mixing, const DecodeMemory& memory);

// The config to load a saved state with; throws an Error if decoding cannot go on from it.
DecodeConfig decode_config_of(const SavedState& state);

// Into memory that is all zeros; decode_open() comes next. `in` is what open_saved_state() gave.
void load_decode(const SavedState& state, ByteReader& in, void* mixing, const DecodeMemory& memory);

}  // namespace mhla
