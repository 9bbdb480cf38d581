// `mhla tokenize`: files of tokens to train language models on, from text or synthetic.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "cli/commands.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/output.hpp"
#include "cli/support/progress.hpp"
#include "data/tokens/documents.hpp"
#include "data/tokens/recall.hpp"
#include "data/tokens/tokenize.hpp"

namespace mhla::cli {
namespace {

struct Tokenize {
  std::string tokenizer;
  std::vector<std::string> data;
  std::string out, split = "train";
  std::int64_t shard = std::int64_t{1} << 25;
  std::int64_t recall = 0, length = 512, pairs = 64;  // documents of pairs, instead of text
  std::uint64_t seed = 0;
  int threads = 0;
  Output output;
};

void check(const Tokenize& given) {
  if (given.split.empty() || given.split.starts_with('.') || given.split.find('/') != std::string::npos)
    throw UsageError(fmt::format("--split is \"{}\"; it must be the name of a folder", given.split));
  if (std::filesystem::exists(std::filesystem::path(given.out) / given.split))
    throw UsageError(fmt::format("--out is {}, which has a folder {} already; choose another --out or --split",
                                 given.out, given.split));
  if (given.data.empty() == (given.recall == 0)) throw UsageError("one of --data and --recall must be given");
}

data::TokenIndex write_tokens(const Tokenize& given, const text::Tokenizer& tokenizer,
                              const std::filesystem::path& split) {
  Progress progress("tokenize", 1.0);
  double before = 0.0;
  const auto show = [&](double done, std::int64_t tokens) {
    progress.advance(done - before, fmt::format("{} tokens", grouped(static_cast<double>(tokens))));
    before = done;
  };
  if (given.recall == 0)
    return data::tokenize_files(tokenizer, data::files_of_text(given.data), split, given.shard, show);
  const data::RecallDocuments documents(tokenizer, given.length, given.pairs, given.seed);
  return data::write_recall_documents(tokenizer, documents, given.recall, split, given.shard, show);
}

void run_tokenize(const Tokenize& given) {
  check(given);
  const std::filesystem::path split = std::filesystem::path(given.out) / given.split;
  use_threads(given.threads);
  const auto tokenizer = text::open_tokenizer(given.tokenizer);
  const bool has_tokenizer = text::has_tokenizer(given.out);
  if (const auto there = has_tokenizer ? text::open_tokenizer(given.out) : tokenizer;
      there->fingerprint() != tokenizer->fingerprint())
    throw UsageError(fmt::format("--out is {}, where splits are made with the tokenizer {}; --tokenizer is {}",
                                 given.out, there->fingerprint(), tokenizer->fingerprint()));
  const auto start = std::chrono::steady_clock::now();
  const data::TokenIndex index = write_tokens(given, *tokenizer, split);
  if (!has_tokenizer) text::copy_tokenizer(given.tokenizer, given.out);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double bytes = static_cast<double>(index.bytes), tokens = static_cast<double>(index.tokens);
  given.output.text() << fmt::format("{}: {} documents of {} MB, {} tokens ({} bytes each) in {} file{}, {:.1f} s\n",
                                     given.split, grouped(static_cast<double>(index.documents)),
                                     three_digits(bytes / 1e6), grouped(tokens), three_digits(bytes / tokens),
                                     index.shards.size(), index.shards.size() == 1 ? "" : "s", seconds);
  given.output.text() << fmt::format("tokens: {}\n", split.string());
  given.output.json({{"out", split.string()},
                     {"tokenizer", index.tokenizer},
                     {"documents", index.documents},
                     {"bytes", index.bytes},
                     {"tokens", index.tokens},
                     {"files", index.shards.size()},
                     {"seconds", seconds}});
}

}  // namespace

void add_tokenize(CLI::App& program, Outcome& /*outcome*/) {
  auto given = std::make_shared<Tokenize>();
  auto* command = program.add_subcommand(
      "tokenize", "Files of tokens from text or of synthetic documents, to train a language model on");
  command
      ->add_option("--tokenizer", given->tokenizer,
                   "Tokenizer: tokenizer.json, encoder.json, .model, or a folder of one")
      ->required()
      ->check(existing_path())
      ->type_name("PATH");
  command->add_option("--data", given->data, "Text: .txt, .jsonl (member \"text\"), .gz or .tar of them, or a folder")
      ->check(existing_path())
      ->type_name("PATH");
  command->add_option("--out", given->out, "Folder for the splits")->required()->type_name("FOLDER");
  command->add_option("--split", given->split, "New folder in it for these tokens")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--shard", given->shard, "Tokens of a file")
      ->check(within(std::int64_t{1}, data::kMostTokensOfShard))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("--recall", given->recall,
                   "Instead of --data: so many synthetic documents that say pairs of tokens and ask for them")
      ->check(at_least<std::int64_t>(1))
      ->type_name("N")
      ->default_str("none");
  command->add_option("--length", given->length, "Tokens of such a document")
      ->check(within(std::int64_t{17}, std::int64_t{1} << 30))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--pairs", given->pairs, "Most pairs of such a document; it has 4, 8, 16 or so on up to this")
      ->check(within(std::int64_t{4}, std::int64_t{1} << 28))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--seed", given->seed, "Seed of such documents")
      ->check(at_least<std::uint64_t>(0))
      ->type_name("N")
      ->capture_default_str();
  add_threads_option(*command, given->threads);
  given->output.add_option(*command);
  command->callback([given] { run_tokenize(*given); });
}

}  // namespace mhla::cli
