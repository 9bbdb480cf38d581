// `mhla tokenizer encode` and `mhla tokenizer decode`.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>

#include "cli/support/checks.hpp"
#include "cli/support/output.hpp"
#include "cli/tokenizer/commands.hpp"
#include "io/output_file.hpp"
#include "mhla/types.hpp"
#include "text/encode_all.hpp"

namespace mhla::cli {
namespace {

struct Conversion {
  std::string tokenizer;
  std::vector<std::string> words;
  Output output;
};

constexpr std::size_t kMostInput = std::size_t{1} << 28;

std::string standard_input() {
  std::string text;
  std::array<char, 1 << 16> part{};
  do {
    std::cin.read(part.data(), part.size());
    text.append(part.data(), static_cast<std::size_t>(std::cin.gcount()));
    if (text.size() > kMostInput)
      throw Error(
          fmt::format("standard input: more than {} bytes; `mhla tokenize` takes files of any size", kMostInput));
  } while (std::cin);
  return text;
}

void run_tokenizer_encode(const Conversion& given) {
  const auto tokenizer = text::open_tokenizer(given.tokenizer);
  const std::string text = given.words.empty() ? standard_input() : fmt::format("{}", fmt::join(given.words, " "));
  const std::string_view view = text;
  const std::vector<text::Token> tokens = text::encode_all(*tokenizer, {&view, 1}).front();
  given.output.text() << fmt::format("{}\n", fmt::join(tokens, " "));
  io::Json pieces = io::Json::array();
  for (const text::Token token : tokens) pieces.push_back(tokenizer->piece(token));
  given.output.json({{"tokens", tokens}, {"pieces", pieces}});
}

void run_tokenizer_decode(const Conversion& given) {
  const auto tokenizer = text::open_tokenizer(given.tokenizer);
  std::vector<std::string> words = given.words;
  if (words.empty()) {
    std::istringstream stream(standard_input());
    words.assign(std::istream_iterator<std::string>(stream), std::istream_iterator<std::string>());
  }
  std::vector<text::Token> tokens;
  for (const std::string& word : words) {
    const auto token = read_number<text::Token>(word);
    if (!token || *token < 0 || *token >= tokenizer->size())
      throw UsageError(fmt::format("tokens: \"{}\" is no token of {}; it may be 0 to {}", word, given.tokenizer,
                                   tokenizer->size() - 1));
    tokens.push_back(*token);
  }
  const std::string text = tokenizer->decode(tokens);
  // Byte for byte into a file or a pipe; a terminal is not sent control characters.
  if (given.output.wants_json() || ::isatty(STDOUT_FILENO) == 1)
    given.output.text() << text << '\n';
  else
    io::write_standard_output(text);
  given.output.json({{"text", text}});
}

void add_tokenizer_option(CLI::App& command, std::string& tokenizer) {
  command.add_option("--tokenizer", tokenizer, "Tokenizer: tokenizer.json, encoder.json, .model, or a folder of one")
      ->required()
      ->check(existing_path())
      ->type_name("PATH");
}

}  // namespace

void add_tokenizer_encode(CLI::App& tokenizer) {
  auto given = std::make_shared<Conversion>();
  auto* command = tokenizer.add_subcommand("encode", "Print the tokens of a text");
  add_tokenizer_option(*command, given->tokenizer);
  command->add_option("text", given->words, "The text; without it, the standard input")->type_name("TEXT");
  given->output.add_option(*command);
  command->callback([given] { run_tokenizer_encode(*given); });
}

void add_tokenizer_decode(CLI::App& tokenizer) {
  auto given = std::make_shared<Conversion>();
  auto* command = tokenizer.add_subcommand("decode", "Print the text of tokens");
  add_tokenizer_option(*command, given->tokenizer);
  command->add_option("tokens", given->words, "The tokens; without them, the standard input")->type_name("TOKEN");
  given->output.add_option(*command);
  command->callback([given] { run_tokenizer_decode(*given); });
}

}  // namespace mhla::cli
