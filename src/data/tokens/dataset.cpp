// index.json and the shards it names.
#include "data/tokens/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "io/file.hpp"
#include "io/json.hpp"
#include "io/printable.hpp"
#include "mhla/types.hpp"

namespace mhla::data {
namespace {

constexpr const char* kIndexName = "index.json";
constexpr std::size_t kMostIndexBytes = std::size_t{1} << 26;

template <typename Value>
Value index_member(const io::Json& json, const char* name, const std::string& where) {
  Value value{};
  const auto found = json.is_object() ? json.find(name) : json.end();
  if (found == json.end()) throw Error(fmt::format("{}: \"{}\" is missing", where, name));
  bool right = io::read_exactly(*found, value);
  if constexpr (std::is_same_v<Value, std::int64_t>) right = right && value >= 0;
  if (!right) throw Error(fmt::format("{}: \"{}\" is {}", where, name, io::printable(found->dump())));
  return value;
}

}  // namespace

TokenIndex read_token_index(const std::filesystem::path& folder) {
  const std::string name = (folder / kIndexName).string();
  const std::vector<std::byte> bytes = io::read_file(name, kMostIndexBytes);
  const io::Json json = io::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name);
  const auto number = [&](const char* member) { return index_member<std::int64_t>(json, member, name); };
  TokenIndex index{.tokenizer = index_member<std::string>(json, "tokenizer", name),
                   .vocabulary = number("vocabulary"),
                   .begin = number("begin"),
                   .tokens = number("tokens"),
                   .documents = number("documents"),
                   .bytes = number("bytes")};
  if (index.begin >= index.vocabulary)
    throw Error(fmt::format("{}: \"begin\" is {}; the vocabulary has {} tokens", name, index.begin, index.vocabulary));
  const auto shards = json.find("shards");
  if (shards == json.end() || !shards->is_array()) throw Error(fmt::format("{}: \"shards\" must be a list", name));
  std::int64_t left = index.tokens;
  for (const io::Json& shard : *shards) {
    const auto file = index_member<std::string>(shard, "file", name);
    const auto tokens = index_member<std::int64_t>(shard, "tokens", name);
    if (file.empty() || file.find('/') != std::string::npos || file.starts_with('.'))
      throw Error(fmt::format("{}: \"{}\" is no name of a file beside it", name, io::printable(file)));
    if (tokens > left) throw Error(fmt::format("{}: the shards have more than its {} tokens", name, index.tokens));
    left -= tokens;
    index.shards.push_back({file, tokens});
  }
  if (left > 0) throw Error(fmt::format("{}: the shards lack {} of its {} tokens", name, left, index.tokens));
  return index;
}

void write_token_index(const std::filesystem::path& folder, const TokenIndex& index) {
  io::Json shards = io::Json::array();
  for (const auto& [file, tokens] : index.shards) shards.push_back({{"file", file}, {"tokens", tokens}});
  io::write_json((folder / kIndexName).string(), {{"tokenizer", index.tokenizer},
                                                  {"vocabulary", index.vocabulary},
                                                  {"begin", index.begin},
                                                  {"tokens", index.tokens},
                                                  {"documents", index.documents},
                                                  {"bytes", index.bytes},
                                                  {"shards", shards}});
}

TokenDataset::TokenDataset(const std::filesystem::path& folder)
    : index_(read_token_index(folder)), name_(folder.string()) {
  std::int64_t first = 0;
  const int bytes_per_token = index_.vocabulary <= 0x10000 ? 2 : 4;
  for (const auto& [file, tokens] : index_.shards) {
    const TokenShard& shard = shards_.emplace_back(TokenShard::load(folder / file));
    if (shard.size() != tokens)
      throw Error(fmt::format("{}: {} tokens; index.json says {}", shard.source(), shard.size(), tokens));
    if (shard.bytes_per_token() != bytes_per_token)
      throw Error(fmt::format("{}: tokens of {} bytes; a vocabulary of {} has {}", shard.source(),
                              shard.bytes_per_token(), index_.vocabulary, bytes_per_token));
    firsts_.push_back(first);
    first += tokens;
  }
}

void TokenDataset::read(std::int64_t first, std::span<std::int64_t> tokens) const {
  const std::int64_t count = std::ssize(tokens);
  if (first < 0 || count > size() || first > size() - count)
    throw Error(fmt::format("{}: tokens {} to {} are asked for; it has {}", name_, first, first + count, size()));
  auto shard = static_cast<std::size_t>(std::ranges::upper_bound(firsts_, first) - firsts_.begin());
  for (shard -= shard > 0 ? 1 : 0; !tokens.empty(); ++shard) {
    const std::int64_t inside = first - firsts_[shard];
    const std::int64_t here = std::min(std::ssize(tokens), shards_[shard].size() - inside);
    shards_[shard].read(inside, index_.vocabulary, tokens.first(static_cast<std::size_t>(here)));
    tokens = tokens.subspan(static_cast<std::size_t>(here));
    first += here;
  }
}

std::vector<std::int64_t> TokenDataset::document_starts() const {
  std::vector<std::int64_t> starts, tokens;
  for (std::int64_t first = 0; first < size(); first += std::ssize(tokens)) {
    tokens.resize(static_cast<std::size_t>(std::min(size() - first, std::int64_t{1} << 20)));
    read(first, tokens);
    for (std::int64_t i = 0; i < std::ssize(tokens); ++i)
      if (tokens[i] == index_.begin) starts.push_back(first + i);
  }
  return starts;
}

}  // namespace mhla::data
