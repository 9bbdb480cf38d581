// What all tokenizers share.
#include "text/tokenizer.hpp"

#include <fmt/format.h>

#include <utility>

#include "mhla/types.hpp"
#include "text/text_stream.hpp"

namespace mhla::text {

Tokenizer::Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

std::string_view Tokenizer::piece(Token token) const {
  if (token < 0 || token >= size()) throw Error(fmt::format("token is {}; it may be 0 to {}", token, size() - 1));
  return vocabulary_.pieces[static_cast<std::size_t>(token)];
}

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  if (text.size() > kMostBytes)
    throw Error(fmt::format("text has {} bytes; at most {} can be encoded at once", text.size(), kMostBytes));
  return tokens_of(text);
}

std::string Tokenizer::decode(std::span<const Token> tokens) const {
  TextStream stream(*this);
  std::string text;
  for (const Token token : tokens) text += stream.add(token);
  return text + stream.finish();
}

std::vector<std::string_view> Tokenizer::parts(std::string_view text, std::size_t /*at_least*/) const { return {text}; }

}  // namespace mhla::text
