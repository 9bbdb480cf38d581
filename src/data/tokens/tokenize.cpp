// Documents in batches through the tokenizer, tokens to the disk a shard at a time.
#include "data/tokens/tokenize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "data/tokens/documents.hpp"
#include "io/file.hpp"
#include "io/new_folder.hpp"
#include "mhla/types.hpp"
#include "text/encode_all.hpp"

namespace mhla::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBatchBytes = std::size_t{1} << 24;  // of text, encoded together

class SplitWriter {
 public:
  SplitWriter(const text::Tokenizer& tokenizer, fs::path folder, std::int64_t tokens_of_shard)
      : tokenizer_(tokenizer), folder_(std::move(folder)), tokens_of_shard_(tokens_of_shard) {
    index_.tokenizer = tokenizer.fingerprint();
    index_.vocabulary = tokenizer.size();
    const std::optional<Token> begin = tokenizer.special().begin ? tokenizer.special().begin : tokenizer.special().end;
    if (!begin) throw Error("the tokenizer has no token that begins or ends a text; documents could not be told apart");
    index_.begin = *begin;
  }

  void add(std::string_view document) {
    documents_.emplace_back(document);
    batch_bytes_ += document.size();
    if (batch_bytes_ >= kBatchBytes) encode_batch();
  }

  TokenIndex finish() {
    encode_batch();
    if (!tokens_.empty()) write_shard_of(tokens_);
    write_token_index(folder_, index_);
    return index_;
  }

  std::int64_t tokens() const { return index_.tokens + std::ssize(tokens_); }

 private:
  void encode_batch() {
    const std::vector<std::string_view> texts(documents_.begin(), documents_.end());
    for (const std::vector<Token>& encoded : text::encode_all(tokenizer_, texts)) {
      tokens_.push_back(static_cast<Token>(index_.begin));
      tokens_.insert(tokens_.end(), encoded.begin(), encoded.end());
    }
    const auto shard = static_cast<std::size_t>(tokens_of_shard_);
    std::span<const Token> left = tokens_;
    for (; left.size() >= shard; left = left.subspan(shard)) write_shard_of(left.first(shard));
    tokens_.erase(tokens_.begin(), tokens_.end() - std::ssize(left));
    index_.documents += std::ssize(documents_);
    index_.bytes += static_cast<std::int64_t>(batch_bytes_);
    documents_.clear();
    batch_bytes_ = 0;
  }

  void write_shard_of(std::span<const Token> tokens) {
    const std::string file = fmt::format("{:06}.bin", index_.shards.size());
    write_shard(folder_ / file, tokens, index_.vocabulary);
    index_.shards.push_back({file, std::ssize(tokens)});
    index_.tokens += std::ssize(tokens);
  }

  const text::Tokenizer& tokenizer_;
  fs::path folder_;
  std::int64_t tokens_of_shard_;
  TokenIndex index_;
  std::vector<std::string> documents_;
  std::size_t batch_bytes_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

TokenIndex tokenize_files(const text::Tokenizer& tokenizer, const std::vector<fs::path>& files, const fs::path& split,
                          std::int64_t tokens_of_shard,
                          const std::function<void(double done, std::int64_t tokens)>& progress) {
  if (tokens_of_shard < 1 || tokens_of_shard > kMostTokensOfShard)
    throw Error(fmt::format("tokens_of_shard is {}; it may be 1 to {}", tokens_of_shard, kMostTokensOfShard));
  io::NewFolder folder(split);
  std::vector<double> sizes;
  double all = 0.0, before = 0.0;
  for (const fs::path& file : files) all += sizes.emplace_back(static_cast<double>(io::size_of_file(file)));
  SplitWriter writer(tokenizer, folder.unfinished(), tokens_of_shard);
  for (std::size_t i = 0; i < files.size(); ++i) {
    for_each_document(files[i], [&](std::string_view document, double done) {
      writer.add(document);
      if (progress) progress((before + done * sizes[i]) / all, writer.tokens());
    });
    before += sizes[i];
  }
  TokenIndex index = writer.finish();
  if (index.documents == 0)
    throw Error(fmt::format("{}: no text in {} file{}", files.empty() ? "no files" : files[0].string(), files.size(),
                            files.size() == 1 ? "" : "s"));
  folder.finish();
  return index;
}

}  // namespace mhla::data
