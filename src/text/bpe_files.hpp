// Files of byte-level BPE: GPT-2's pair, and tokenizer.json as the library tokenizers of Hugging Face stores it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "io/json.hpp"
#include "text/byte_bpe.hpp"

namespace mhla::text {

// The names of the files begin error messages.
BpeModel read_gpt2_files(const io::Json& vocabulary, const std::string& name, std::string_view merges,
                         const std::string& name_of_merges);
BpeModel read_tokenizer_json(const io::Json& json, const std::string& name);

// The same model gives the same bytes.
void write_tokenizer_json(const std::filesystem::path& path, const BpeModel& model);

}  // namespace mhla::text
