// Files of tokenizers: what is accepted encodes any text to tokens of its vocabulary, whole and in parts alike, and
// what is decoded is UTF-8. The bytes of the input are the text too.
#include "text/tokenizer.hpp"

#include "io/printable.hpp"
#include "support/small_tokenizers.hpp"
#include "support/target.hpp"
#include "text/bpe_files.hpp"

using namespace mhla;

namespace {

void judge_text(const text::Tokenizer& tokenizer, std::string_view text) {
  const std::vector<text::Token> tokens = tokenizer.encode(text);
  for (const text::Token token : tokens)
    fuzz::expect(token >= 0 && token < tokenizer.size(), "a token outside the vocabulary");
  const std::string decoded = tokenizer.decode(tokens);
  fuzz::expect(io::is_utf8(decoded), "decoded text is not UTF-8");
  std::vector<text::Token> of_parts;
  for (const std::string_view part : tokenizer.parts(text, 16))
    for (const text::Token token : tokenizer.encode(part)) of_parts.push_back(token);
  fuzz::expect(of_parts == tokens, "parts have other tokens");
  if (dynamic_cast<const text::ByteBpe*>(&tokenizer) == nullptr) return;
  std::string bytes;
  for (const text::Token token : tokens) bytes += tokenizer.piece(token);
  fuzz::expect(bytes == text, "the pieces are not the text");
}

}  // namespace

fuzz::Inputs fuzz::seeds() {
  using testing::small_sentence_piece;
  return {bytes_of(testing::small_tokenizer_json()),
          bytes_of(testing::small_merges()),
          bytes_of(small_sentence_piece()),
          bytes_of(small_sentence_piece({.unigram = true, .bytes = false})),
          bytes_of(small_sentence_piece({.space_first = false, .joined = true})),
          bytes_of(small_sentence_piece({.map = testing::small_map()})),
          bytes_of("It's the theme:  caf\xC3\xA9 \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x8C\xB2, 3.14\r\n\n the \xFF end")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto known = text::read_tokenizer(fuzz::bytes_of(testing::small_tokenizer_json()), "known");
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  judge_text(*known, text);
  fuzz::runs_or_names({"the-file"}, [&] {
    static const io::Json vocabulary = io::parse_json(testing::small_vocabulary(), "vocabulary");
    judge_text(text::ByteBpe(text::read_gpt2_files(vocabulary, "vocabulary", text, "the-file"), "the-file"),
               "the theme");
  });
  fuzz::runs_or_names({"the-file"}, [&] {
    const auto tokenizer = text::read_tokenizer(fuzz::bytes_of(data, size), "the-file");
    for (const std::string_view each :
         {text.substr(0, 1000), std::string_view("the theme  the\n\tthe th\xC3\xA9me \xFF")})
      judge_text(*tokenizer, each);
  });
  return 0;
}
