// Which kind of tokenizer a file is.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/file.hpp"
#include "io/gzip.hpp"
#include "mhla/types.hpp"
#include "text/bpe_files.hpp"
#include "text/sentence_piece.hpp"
#include "text/tokenizer.hpp"

namespace mhla::text {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostInFile = std::size_t{1} << 28;

// GPT-2's vocabularies and their merges, by the end of the name.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kPairs{
    {{"encoder.json", "vocab.bpe"}, {"vocab.json", "merges.txt"}}};

std::vector<std::byte> unpacked(const fs::path& path) {
  std::vector<std::byte> bytes = io::read_file(path, kMostInFile);
  return io::is_gzip(bytes) ? io::gunzip(bytes, path.string(), std::min(kMostInFile, io::most_unpacked(bytes.size())))
                            : bytes;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool looks_like_json(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size())).starts_with('{');
}

// In a GPT-2 vocabulary, "model" is a token with a number.
bool is_tokenizer_json(const io::Json& json) {
  const auto model = json.find("model");
  return model != json.end() && !model->is_number();
}

std::shared_ptr<const Tokenizer> read_other(std::span<const std::byte> bytes, const std::string& source) {
  if (looks_like_sentence_piece(bytes)) return read_sentence_piece(bytes, source);
  throw Error(
      fmt::format("{}: no tokenizer; it may be a tokenizer.json, an encoder.json or a SentencePiece model", source));
}

// With or without .gz; nothing where there is no such file.
std::optional<fs::path> existing(const fs::path& path) {
  std::error_code failure;
  for (const fs::path& each : {path, fs::path(path.string() + ".gz")})
    if (fs::is_regular_file(each, failure)) return each;
  return std::nullopt;
}

std::optional<fs::path> found_in(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "tokenizer.model", "encoder.json", "vocab.json"})
    if (const auto found = existing(folder / name)) return found;
  return std::nullopt;
}

// The file that says what kind of tokenizer it is.
fs::path main_file(const fs::path& path) {
  std::error_code failure;
  if (!fs::is_directory(path, failure)) return path;
  if (const auto found = found_in(path)) return *found;
  throw Error(
      fmt::format("{}: the folder has no tokenizer.json, tokenizer.model, encoder.json with vocab.bpe or vocab.json "
                  "with merges.txt",
                  path.string()));
}

// Beside the vocabulary, under the name that belongs to its own: "gpt2_encoder.json" has "gpt2_vocab.bpe".
fs::path merges_of(const fs::path& vocabulary) {
  std::string name = vocabulary.filename().string();
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  for (const auto& [ending, other] : kPairs)
    if (name.ends_with(ending)) {
      const fs::path merges = vocabulary.parent_path() / (name.substr(0, name.size() - ending.size()) += other);
      if (const auto found = existing(merges)) return *found;
      throw Error(
          fmt::format("{}: a vocabulary without its merges; there is no {}", vocabulary.string(), merges.string()));
    }
  throw Error(fmt::format("{}: a vocabulary alone; named encoder.json or vocab.json it would be read with its merges",
                          vocabulary.string()));
}

}  // namespace

std::shared_ptr<const Tokenizer> open_tokenizer(const fs::path& path) {
  const fs::path file = main_file(path);
  const std::string name = file.string();
  const std::vector<std::byte> bytes = unpacked(file);
  if (!looks_like_json(text_of(bytes))) return read_other(bytes, name);
  const io::Json json = io::parse_json(text_of(bytes), name);
  if (is_tokenizer_json(json)) return std::make_shared<ByteBpe>(read_tokenizer_json(json, name), name);
  const fs::path other = merges_of(file);
  const std::vector<std::byte> merges = unpacked(other);
  return std::make_shared<ByteBpe>(read_gpt2_files(json, name, text_of(merges), other.string()), name);
}

bool has_tokenizer(const fs::path& folder) { return found_in(folder).has_value(); }

void copy_tokenizer(const fs::path& path, const fs::path& folder) {
  const fs::path file = main_file(path);
  const std::vector<std::byte> bytes = unpacked(file);
  if (!looks_like_json(text_of(bytes))) return io::write_file(folder / "tokenizer.model", bytes);
  if (is_tokenizer_json(io::parse_json(text_of(bytes), file.string())))
    return io::write_file(folder / "tokenizer.json", bytes);
  io::write_file(folder / "vocab.json", bytes);
  io::write_file(folder / "merges.txt", unpacked(merges_of(file)));
}

std::shared_ptr<const Tokenizer> read_tokenizer(std::span<const std::byte> bytes, const std::string& source) {
  if (!looks_like_json(text_of(bytes))) return read_other(bytes, source);
  return std::make_shared<ByteBpe>(read_tokenizer_json(io::parse_json(text_of(bytes), source), source), source);
}

}  // namespace mhla::text
