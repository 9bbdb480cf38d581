// The library encodes; what its pieces stand for is read once, so that all kinds of tokens decode alike.
#include "text/sentence_piece.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "io/printable.hpp"
#include "mhla/types.hpp"
#include "text/fingerprint.hpp"
#include "text/known_words.hpp"
#include "text/normalization_map.hpp"

namespace mhla::text {
namespace {

using Processor = sentencepiece::SentencePieceProcessor;

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, how pieces spell a space

// "<0x0A>" -> "\n"
std::string byte_of(const std::string& piece, const std::string& name) {
  unsigned value = 256;
  const char* const digits = piece.data() + 3;
  const bool framed = piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
  if (!framed || std::from_chars(digits, digits + 2, value, 16).ptr != digits + 2)
    throw Error(fmt::format("{}: the piece \"{}\" should be a byte such as <0x0A>", name, io::printable(piece)));
  return std::string(1, static_cast<char>(value));
}

std::string with_spaces(std::string piece) {
  for (std::size_t at = 0; (at = piece.find(kSpace, at)) != std::string::npos; ++at)
    piece.replace(at, kSpace.size(), " ");
  return piece;
}

std::string decoded_alone(const Processor& processor, int id) {
  std::string text;
  return processor.Decode(std::vector<int>{id}, &text).ok() ? text : "";
}

Vocabulary vocabulary_of(const Processor& processor, std::span<const std::byte> bytes, const std::string& name) {
  Vocabulary result;
  const auto role = [](int id) { return id >= 0 ? std::optional<Token>(id) : std::nullopt; };
  result.special = {.begin = role(processor.bos_id()),
                    .end = role(processor.eos_id()),
                    .unknown = role(processor.unk_id()),
                    .pad = role(processor.pad_id())};
  bool probed = false;
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    if (processor.IsControl(id)) {
      result.pieces.emplace_back();
    } else if (processor.IsUnknown(id)) {
      result.pieces.push_back(decoded_alone(processor, id));
    } else if (processor.IsByte(id)) {
      result.pieces.push_back(byte_of(processor.IdToPiece(id), name));
    } else {
      result.pieces.push_back(with_spaces(processor.IdToPiece(id)));
      if (probed || !result.pieces.back().starts_with(' ')) continue;
      result.space_in_front = decoded_alone(processor, id).size() < result.pieces.back().size();
      probed = true;
    }
  }
  Fingerprint fingerprint;
  fingerprint.add("SentencePiece");
  fingerprint.add(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  result.fingerprint = fingerprint.hexadecimal();
  return result;
}

bool is_graphic(char letter) { return letter > ' ' && letter <= '~'; }

// The words of a text where a single space between two visible ASCII characters separates them.
template <typename Take>
void for_each_word(std::string_view text, std::size_t at_least, Take&& take) {
  at_least = std::max<std::size_t>(at_least, 1);
  std::size_t begin = 0;
  for (std::size_t at = at_least; at + 1 < text.size(); ++at) {
    if (text[at] != ' ' || !is_graphic(text[at - 1]) || !is_graphic(text[at + 1])) continue;
    take(text.substr(begin, at - begin));
    begin = at + 1;
    at = begin + at_least - 1;
  }
  take(text.substr(begin));
}

// Whether a space separates words for good, so that they can be encoded one by one: the model is BPE, no piece goes on
// after a space that follows something else, and the space is put in front of every word. BPE numbers its pieces in
// place of scores; in unigram models, which have logarithms there, words far away decide by rounding.
bool has_words(const Processor& processor, const Vocabulary& vocabulary) {
  bool alone = false;
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    if (processor.IsControl(id) || processor.IsUnknown(id) || processor.IsByte(id)) continue;
    const std::string& piece = vocabulary.pieces[id];
    const std::size_t word = std::min(piece.find_first_not_of(' '), piece.size());
    if (piece.find(' ', word) != std::string::npos || std::trunc(processor.GetScore(id)) != processor.GetScore(id))
      return false;
    alone = alone || piece == " ";
  }
  return alone && vocabulary.space_in_front;
}

class SentencePiece final : public Tokenizer {
 public:
  SentencePiece(std::unique_ptr<const Processor> processor, Vocabulary vocabulary_of_it, std::string name)
      : Tokenizer(std::move(vocabulary_of_it)), name_(std::move(name)), processor_(std::move(processor)),
        has_words_(has_words(*processor_, vocabulary())) {}

  std::string_view kind() const override { return "SentencePiece"; }

  std::vector<std::string_view> parts(std::string_view text, std::size_t at_least) const override {
    if (!has_words_) return {text};
    std::vector<std::string_view> parts;
    for_each_word(text, at_least, [&](std::string_view part) { parts.push_back(part); });
    return parts;
  }

 private:
  std::vector<Token> tokens_of(std::string_view text) const override {
    if (!has_words_) return encoded(text);
    std::vector<Token> tokens;
    KnownWords known(tokens);
    for_each_word(text, 1, [&](std::string_view part) {
      known.append(part, [&](std::string_view word) { return encoded(word); });
    });
    return tokens;
  }

  std::vector<Token> encoded(std::string_view text) const {
    std::vector<int> tokens;
    if (const auto status = processor_->Encode(text, &tokens); !status.ok())
      throw Error(fmt::format("{}: a text cannot be encoded: {}", name_, status.ToString()));
    return tokens;
  }

  std::string name_;
  std::unique_ptr<const Processor> processor_;
  bool has_words_;
};

}  // namespace

bool looks_like_sentence_piece(std::span<const std::byte> bytes) {
  return !bytes.empty() && bytes[0] == std::byte{0x0A};
}

std::shared_ptr<const Tokenizer> read_sentence_piece(std::span<const std::byte> bytes, const std::string& name) {
  check_normalization_maps(bytes, name);
  auto processor = std::make_unique<Processor>();
  try {
    const std::string_view model(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (const auto status = processor->LoadFromSerializedProto(model); !status.ok())
      throw std::runtime_error(status.ToString());
  } catch (const std::exception& error) {  // some of the library's own are no status
    throw Error(fmt::format("{}: no SentencePiece model: {}", name, io::printable(error.what())));
  }
  Vocabulary vocabulary = vocabulary_of(*processor, bytes, name);
  return std::make_shared<SentencePiece>(std::move(processor), std::move(vocabulary), name);
}

}  // namespace mhla::text
