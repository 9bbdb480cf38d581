// The library encodes; what its pieces stand for is read once, so that all kinds of tokens decode alike.
#include "text/sentence_piece.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <charconv>
#include <utility>

#include "io/printable.hpp"
#include "mhla/types.hpp"
#include "text/fingerprint.hpp"

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

class SentencePiece final : public Tokenizer {
 public:
  SentencePiece(std::unique_ptr<const Processor> processor, Vocabulary vocabulary)
      : Tokenizer(std::move(vocabulary)), processor_(std::move(processor)) {}

  std::string_view kind() const override { return "SentencePiece"; }

 private:
  std::vector<Token> tokens_of(std::string_view text) const override {
    std::vector<int> tokens;
    if (const auto status = processor_->Encode(text, &tokens); !status.ok())
      throw Error(fmt::format("text cannot be encoded: {}", status.ToString()));
    return tokens;
  }

  std::unique_ptr<const Processor> processor_;
};

}  // namespace

bool looks_like_sentence_piece(std::span<const std::byte> bytes) {
  return !bytes.empty() && bytes[0] == std::byte{0x0A};
}

std::shared_ptr<const Tokenizer> read_sentence_piece(std::span<const std::byte> bytes, const std::string& name) {
  auto processor = std::make_unique<Processor>();
  const std::string_view model(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (const auto status = processor->LoadFromSerializedProto(model); !status.ok())
    throw Error(fmt::format("{}: no SentencePiece model: {}", name, io::printable(status.ToString())));
  Vocabulary vocabulary = vocabulary_of(*processor, bytes, name);
  return std::make_shared<SentencePiece>(std::move(processor), std::move(vocabulary));
}

}  // namespace mhla::text
