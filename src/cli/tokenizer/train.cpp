// `mhla tokenizer train`: a byte-level BPE vocabulary from text.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "cli/support/checks.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/output.hpp"
#include "cli/support/progress.hpp"
#include "cli/tokenizer/commands.hpp"
#include "data/tokens/documents.hpp"
#include "io/file.hpp"
#include "report/duration.hpp"
#include "text/bpe_files.hpp"
#include "text/bpe_training.hpp"

namespace mhla::cli {
namespace {

struct TokenizerTraining {
  std::vector<std::string> data;
  std::int64_t vocabulary = 0;
  std::string out = "tokenizer.json";
  int threads = 0;
  Output output;
};

constexpr std::int64_t kMostVocabulary = 1 << 20;
constexpr std::size_t kCountedTogether = std::size_t{1} << 24;  // bytes

struct CountedText {
  text::WordCounts words;
  std::int64_t documents = 0, bytes = 0;
};

CountedText count_words(const std::vector<std::string>& paths) {
  CountedText counted;
  const std::vector<std::filesystem::path> files = data::files_of_text(paths);
  std::vector<double> sizes;
  double all = 0.0;
  for (const auto& file : files) all += sizes.emplace_back(static_cast<double>(io::size_of_file(file)));
  Progress progress("count words", all);
  std::vector<std::string> waiting;
  std::size_t waiting_bytes = 0;
  const auto count_waiting = [&] {
    const std::vector<std::string_view> texts(waiting.begin(), waiting.end());
    counted.words.add(texts);
    waiting.clear();
    waiting_bytes = 0;
  };
  for (std::size_t i = 0; i < files.size(); ++i) {
    double before = 0.0;
    data::for_each_document(files[i], [&](std::string_view document, double done) {
      waiting.emplace_back(document);
      waiting_bytes += document.size();
      if (waiting_bytes >= kCountedTogether) count_waiting();
      counted.documents += 1;
      counted.bytes += std::ssize(document);
      progress.advance((done - before) * sizes[i], files[i].filename().string());
      before = done;
    });
    progress.advance((1.0 - before) * sizes[i]);
  }
  count_waiting();
  return counted;
}

void run_tokenizer_train(const TokenizerTraining& given) {
  use_threads(given.threads);
  const auto start = std::chrono::steady_clock::now();
  const CountedText counted = count_words(given.data);
  if (counted.documents == 0) throw Error(fmt::format("{}: no text in it", given.data.front()));
  text::BpeModel model;
  {
    Progress progress("merge pairs", static_cast<double>(given.vocabulary));
    std::int64_t before = 0;
    model = text::train_bpe(counted.words, given.vocabulary, [&](std::int64_t done, std::int64_t) {
      progress.advance(static_cast<double>(done - before));
      before = done;
    });
  }
  text::write_tokenizer_json(given.out, model);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto tokens = std::ssize(model.pieces);
  const text::ByteBpe tokenizer(std::move(model), given.out);
  std::ostream& text = given.output.text();
  text << fmt::format("{} tokens from {} documents of {} MB, {} different words, in {:.1f} s\n",
                      grouped(static_cast<double>(tokens)), grouped(static_cast<double>(counted.documents)),
                      three_digits(static_cast<double>(counted.bytes) / 1e6),
                      grouped(static_cast<double>(counted.words.words().size())), seconds);
  if (tokens < given.vocabulary)
    text << fmt::format("fewer than --vocab {}: no pair of tokens appears twice any more\n", given.vocabulary);
  text << fmt::format("tokenizer: {}\n", given.out);
  given.output.json({{"tokenizer", given.out},
                     {"tokens", tokens},
                     {"fingerprint", tokenizer.fingerprint()},
                     {"documents", counted.documents},
                     {"bytes", counted.bytes},
                     {"words", counted.words.words().size()},
                     {"seconds", seconds}});
}

}  // namespace

void add_tokenizer_train(CLI::App& tokenizer) {
  auto given = std::make_shared<TokenizerTraining>();
  auto* command = tokenizer.add_subcommand("train", "Make a byte-level BPE vocabulary from text");
  command->add_option("--data", given->data, "Text: .txt, .jsonl (member \"text\"), .gz or .tar of them, or a folder")
      ->required()
      ->check(existing_path())
      ->type_name("PATH");
  command->add_option("--vocab", given->vocabulary, "Tokens of the vocabulary, with all bytes and <|endoftext|>")
      ->required()
      ->check(within(text::kLeastVocabulary, kMostVocabulary))
      ->type_name("N");
  command->add_option("-o,--out", given->out, "File for the tokenizer")->type_name("FILE")->capture_default_str();
  add_threads_option(*command, given->threads);
  given->output.add_option(*command);
  command->callback([given] { run_tokenizer_train(*given); });
}

}  // namespace mhla::cli
