// `mhla tokenizer inspect`: what a tokenizer is.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "cli/support/checks.hpp"
#include "cli/support/output.hpp"
#include "cli/tokenizer/commands.hpp"
#include "io/printable.hpp"
#include "text/tokenizer.hpp"

namespace mhla::cli {
namespace {

struct TokenizerInspection {
  std::string tokenizer;
  Output output;
};

constexpr std::size_t kLongest = 10;

// The longest pieces say at a glance what a vocabulary was made from.
std::vector<std::string> longest_pieces(const text::Tokenizer& tokenizer) {
  std::vector<std::string> pieces;
  pieces.reserve(static_cast<std::size_t>(tokenizer.size()));
  for (text::Token token = 0; token < tokenizer.size(); ++token) pieces.emplace_back(tokenizer.piece(token));
  std::ranges::stable_sort(pieces, std::ranges::greater{}, &std::string::size);
  pieces.resize(std::min(pieces.size(), kLongest));
  return pieces;
}

void run_tokenizer_inspect(const TokenizerInspection& given) {
  const auto tokenizer = text::open_tokenizer(given.tokenizer);
  const auto& special = tokenizer->special();
  const std::array<std::pair<const char*, std::optional<text::Token>>, 4> roles{
      {{"begin", special.begin}, {"end", special.end}, {"unknown", special.unknown}, {"pad", special.pad}}};
  io::Json tokens = io::Json::object();
  std::ostream& text = given.output.text();
  text << fmt::format("{}: {}, {} tokens\n", given.tokenizer, tokenizer->kind(),
                      grouped(static_cast<double>(tokenizer->size())));
  text << fmt::format("fingerprint: {}\n", tokenizer->fingerprint());
  for (const auto& [role, token] : roles) {
    if (!token) continue;
    text << fmt::format("{}: {}\n", role, *token);
    tokens[role] = *token;
  }
  const std::vector<std::string> longest = longest_pieces(*tokenizer);
  std::vector<std::string> shown;
  shown.reserve(longest.size());
  for (const std::string& piece : longest) shown.push_back(fmt::format("\"{}\"", io::printable(piece)));
  text << fmt::format("longest tokens: {}\n", fmt::join(shown, ", "));
  given.output.json({{"tokenizer", given.tokenizer},
                     {"kind", std::string(tokenizer->kind())},
                     {"size", tokenizer->size()},
                     {"fingerprint", tokenizer->fingerprint()},
                     {"special", tokens},
                     {"longest", longest}});
}

}  // namespace

void add_tokenizer_inspect(CLI::App& tokenizer) {
  auto given = std::make_shared<TokenizerInspection>();
  auto* command = tokenizer.add_subcommand("inspect", "Show what a tokenizer is");
  command->add_option("tokenizer", given->tokenizer, "tokenizer.json, encoder.json, .model, or a folder of one")
      ->required()
      ->check(existing_path())
      ->type_name("PATH");
  given->output.add_option(*command);
  command->callback([given] { run_tokenizer_inspect(*given); });
}

}  // namespace mhla::cli
