// Headers and tokens of shards.
#include "data/tokens/shard.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "io/file.hpp"
#include "io/mapped_file.hpp"
#include "mhla/types.hpp"

namespace mhla::data {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are read as they lie in memory");

struct ShardKind {
  std::int32_t magic, version;
  int bytes_per_token;
};
constexpr std::array<ShardKind, 2> kShardKinds{{{20240520, 1, 2}, {20240801, 7, 4}}};

using ShardHeader = std::array<std::int32_t, 256>;

template <typename Stored>
void append_tokens(std::span<const Token> tokens, std::vector<std::byte>& bytes) {
  const std::size_t begin = bytes.size();
  bytes.resize(begin + tokens.size() * sizeof(Stored));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto stored = static_cast<Stored>(tokens[i]);
    std::memcpy(&bytes[begin + i * sizeof(Stored)], &stored, sizeof(Stored));
  }
}

}  // namespace

void write_shard(const std::filesystem::path& path, std::span<const Token> tokens, std::int64_t vocabulary) {
  if (std::ssize(tokens) > kMostTokensOfShard)
    throw Error(fmt::format("{}: {} tokens; a file has at most {}", path.string(), tokens.size(), kMostTokensOfShard));
  for (const Token token : tokens)
    if (token < 0 || token >= vocabulary)
      throw Error(fmt::format("{}: token is {}; it may be 0 to {}", path.string(), token, vocabulary - 1));
  const ShardKind& kind = kShardKinds[vocabulary <= 0x10000 ? 0 : 1];
  ShardHeader header{kind.magic, kind.version, static_cast<std::int32_t>(tokens.size())};
  std::vector<std::byte> bytes(sizeof(header));
  std::memcpy(bytes.data(), header.data(), sizeof(header));
  if (kind.bytes_per_token == 2)
    append_tokens<std::uint16_t>(tokens, bytes);
  else
    append_tokens<std::uint32_t>(tokens, bytes);
  io::write_file(path, bytes);
}

TokenShard TokenShard::load(const std::filesystem::path& path) {
  const io::MappedFile mapped(path);
  return {mapped.owner, mapped.bytes, path.string()};
}

TokenShard TokenShard::parse(std::vector<std::byte> bytes, std::string source) {
  const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {owner, *owner, std::move(source)};
}

TokenShard::TokenShard(std::shared_ptr<const void> owner, std::span<const std::byte> bytes, std::string source)
    : owner_(std::move(owner)), source_(std::move(source)) {
  ShardHeader header{};
  if (bytes.size() < sizeof(header))
    throw Error(
        fmt::format("{}: {} bytes; the header of a file of tokens has {}", source_, bytes.size(), sizeof(header)));
  std::memcpy(header.data(), bytes.data(), sizeof(header));
  const ShardKind* kind = nullptr;
  for (const ShardKind& each : kShardKinds)
    if (header[0] == each.magic) kind = &each;
  if (kind == nullptr)
    throw Error(fmt::format("{}: no file of tokens; it begins with {}, and may with {} or {}", source_, header[0],
                            kShardKinds[0].magic, kShardKinds[1].magic));
  if (header[1] != kind->version)
    throw Error(
        fmt::format("{}: the version is {}; with {} it must be {}", source_, header[1], kind->magic, kind->version));
  bytes_per_token_ = kind->bytes_per_token;
  tokens_ = bytes.subspan(sizeof(header));
  size_ = header[2];
  if (size_ < 0 || static_cast<std::uint64_t>(size_) * static_cast<std::uint64_t>(bytes_per_token_) != tokens_.size())
    throw Error(fmt::format("{}: the header says {} tokens of {} bytes; {} bytes follow it", source_, size_,
                            bytes_per_token_, tokens_.size()));
}

void TokenShard::read(std::int64_t first, std::int64_t vocabulary, std::span<std::int64_t> tokens) const {
  const auto count = std::ssize(tokens);
  if (first < 0 || count > size_ || first > size_ - count)
    throw Error(fmt::format("{}: tokens {} to {} are asked for; it has {}", source_, first, first + count, size_));
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t token = 0;
    std::memcpy(&token, &tokens_[static_cast<std::size_t>((first + i) * bytes_per_token_)],
                static_cast<std::size_t>(bytes_per_token_));
    if (token >= vocabulary)
      throw Error(fmt::format("{}: token {} is {}; it may be 0 to {}", source_, first + i, token, vocabulary - 1));
    tokens[i] = token;
  }
}

}  // namespace mhla::data
