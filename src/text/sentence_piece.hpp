// Models of SentencePiece, by its library.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "text/tokenizer.hpp"

namespace mhla::text {

// Whether a file may be one: it begins with a piece.
bool looks_like_sentence_piece(std::span<const std::byte> bytes);

std::shared_ptr<const Tokenizer> read_sentence_piece(std::span<const std::byte> bytes, const std::string& name);

}  // namespace mhla::text
