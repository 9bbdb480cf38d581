// Header, checks and checksum of saved states.
#include "core/saved_state.hpp"

#include <algorithm>
#include <string>

#include "core/sizes.hpp"
#include "core/validate.hpp"

namespace mhla {
namespace {

constexpr char kMagic[8] = {'M', 'H', 'L', 'A', 'S', 'T', 'A', 'T'};
constexpr std::uint32_t kFormat = 2;

// Sizes multiplied and added without overflow, since they come from outside.
class CheckedSize {
 public:
  explicit CheckedSize(std::int64_t value) : value_(value) { require(value >= 0); }
  CheckedSize operator*(CheckedSize other) const {
    std::int64_t result = 0;
    require(!__builtin_mul_overflow(value_, other.value_, &result));
    return CheckedSize(result);
  }
  CheckedSize operator+(CheckedSize other) const {
    std::int64_t result = 0;
    require(!__builtin_add_overflow(value_, other.value_, &result));
    return CheckedSize(result);
  }
  std::uint64_t value() const { return static_cast<std::uint64_t>(value_); }

 private:
  static void require(bool ok) {
    if (!ok) throw Error("bytes of a state hold a size that is negative or does not fit 64 bits");
  }
  std::int64_t value_;
};
using Size = CheckedSize;

Size size_of(DType dtype) { return Size(static_cast<std::int64_t>(element_size(dtype))); }

template <typename Enum>
Enum read_enum(ByteReader& in, const char* field) {
  const auto number = in.value<std::uint32_t>();
  const auto value = static_cast<Enum>(number);
  try {
    static_cast<void>(name(value));
  } catch (const Error&) {
    throw Error("bytes of a state hold " + std::to_string(number) + " as " + field + ", which stands for none");
  }
  return value;
}

bool read_flag(ByteReader& in, const char* field) {
  const auto value = in.value<std::uint32_t>();
  if (value > 1) throw Error("bytes of a state hold " + std::to_string(value) + " as " + field + "; it must be 0 or 1");
  return value == 1;
}

void write_config(ByteWriter& out, const DecodeConfig& config) {
  out.value(static_cast<std::uint32_t>(config.dtype));
  for (const std::int64_t value : {config.batch, config.heads, config.kv_heads, config.key_dim, config.value_dim,
                                   config.block_size, config.mixing_blocks})
    out.value(value);
  out.value(static_cast<std::uint32_t>(config.mixing_per_head ? 1 : 0));
  out.value(static_cast<std::uint32_t>(config.options.feature_map));
  out.value(static_cast<std::uint32_t>(config.options.normalizer));
  out.value(static_cast<std::uint32_t>(config.options.algorithm));
  for (const double value : {config.options.scale, config.options.eps, config.options.feature_eps}) out.value(value);
  out.value(static_cast<std::uint32_t>(config.beyond));
  out.value(static_cast<std::uint32_t>(config.summary_dtype));
  out.value(config.max_tokens);
}

DecodeConfig read_config(ByteReader& in) {
  DecodeConfig config;
  config.dtype = read_enum<DType>(in, "dtype");
  for (std::int64_t* value : {&config.batch, &config.heads, &config.kv_heads, &config.key_dim, &config.value_dim,
                              &config.block_size, &config.mixing_blocks})
    *value = in.value<std::int64_t>();
  config.mixing_per_head = read_flag(in, "mixing_per_head");
  config.options.feature_map = read_enum<FeatureMap>(in, "feature_map");
  config.options.normalizer = read_enum<Normalizer>(in, "normalizer");
  config.options.masking = Masking::token_causal;
  config.options.algorithm = read_enum<Algorithm>(in, "algorithm");
  for (double* value : {&config.options.scale, &config.options.eps, &config.options.feature_eps})
    *value = in.value<double>();
  config.beyond = read_enum<BeyondTrained>(in, "beyond");
  config.summary_dtype = read_enum<DType>(in, "dtype");
  config.max_tokens = in.value<std::int64_t>();
  return config;
}

// S and z of one block of one batch row.
Size summary_bytes(const SavedState& state, DType S_type, DType z_type) {
  const DecodeConfig& c = state.config;
  const Size z = Size(c.kv_heads) * Size(c.key_dim) * Size(state.normalized() ? 1 : 0);
  return Size(c.kv_heads) * Size(c.key_dim) * Size(c.value_dim) * size_of(S_type) + z * size_of(z_type);
}

Size mixing_bytes(const DecodeConfig& c) {
  const Size M(c.mixing_blocks);
  return Size(c.mixing_per_head ? c.heads : 1) * M * M * size_of(accumulation_type(c.dtype));
}

Size array_bytes(const SavedState& state) {
  const DecodeConfig& c = state.config;
  const DType accumulated = accumulation_type(c.dtype);
  const Size block = summary_bytes(state, c.summary_dtype, accumulated);
  const Size row = Size(c.kv_heads) * (Size(c.key_dim) + Size(c.value_dim)) * size_of(c.dtype);
  Size total = mixing_bytes(c);
  if (state.kept().folds) total = total + Size(c.batch) * summary_bytes(state, DType::f64, DType::f64);
  if (state.open == OpenBlock::summary) total = total + Size(c.batch) * summary_bytes(state, accumulated, accumulated);
  for (std::size_t n = 0; n < state.tokens.size(); ++n) {
    total = total + Size(state.block(n) - state.first(n)) * block;
    if (state.open == OpenBlock::rows) total = total + Size(state.filled(n)) * row;
  }
  return total;
}

void check_config(const SavedState& state) {
  const DecodeConfig& c = state.config;
  static_cast<void>(Size(c.batch) * Size(c.heads) * Size(c.key_dim) * Size(c.value_dim));
  static_cast<void>(Size(c.mixing_blocks) * Size(c.block_size));
  if (state.open == OpenBlock::rows) return validate(c);
  validate(static_cast<const StateConfig&>(c));
  if (c.summary_dtype != accumulation_type(c.dtype) || c.max_tokens != 0)
    throw Error("bytes of a state hold summary_dtype " + std::string(name(c.summary_dtype)) + " and max_tokens " +
                std::to_string(c.max_tokens) + "; beside the sum of an open block they must be " +
                std::string(name(accumulation_type(c.dtype))) + " and 0");
}

void check_tokens(const SavedState& state) {
  const DecodeConfig& c = state.config;
  for (std::size_t n = 0; n < state.tokens.size(); ++n) {
    const std::int64_t tokens = state.tokens[n];
    std::int64_t most = c.max_tokens > 0 ? c.max_tokens : kMostTokens;
    if (c.beyond == BeyondTrained::error) most = std::min(most, c.mixing_blocks * c.block_size);
    if (tokens < 0 || tokens > most)
      throw Error("bytes of a state hold " + std::to_string(tokens) + " as the tokens of batch row " +
                  std::to_string(n) + "; they may be 0 to " + std::to_string(most));
  }
}

}  // namespace

ByteWriter begin_saved_state(const SavedState& state) {
  check_config(state);
  check_tokens(state);
  ByteWriter out;
  out.array(std::span<const char>(kMagic));
  out.value(kFormat);
  write_config(out, state.config);
  out.value(static_cast<std::uint32_t>(state.open));
  out.array(std::span<const std::int64_t>(state.tokens));
  return out;
}

std::vector<std::byte> finish_saved_state(ByteWriter out) {
  out.value(checksum(out.bytes()));
  return out.take();
}

std::pair<SavedState, ByteReader> open_saved_state(std::span<const std::byte> bytes) {
  constexpr std::size_t kFrame = sizeof kMagic + sizeof kFormat + sizeof(std::uint64_t);
  if (bytes.size() < kFrame || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    throw Error("bytes are not a saved state: they do not begin with " + std::string(kMagic, sizeof kMagic));
  ByteReader in(bytes.first(bytes.size() - sizeof(std::uint64_t)).subspan(sizeof kMagic));
  const auto format = in.value<std::uint32_t>();
  if (format != kFormat)
    throw Error("bytes of a state are in format " + std::to_string(format) + "; this library reads format " +
                std::to_string(kFormat));
  const auto stored = ByteReader(bytes.last(sizeof(std::uint64_t))).value<std::uint64_t>();
  if (stored != checksum(bytes.first(bytes.size() - sizeof stored)))
    throw Error("bytes of a state do not match their checksum; they are damaged or cut short");

  SavedState state;
  state.config = read_config(in);
  state.open = read_flag(in, "how the open block is kept") ? OpenBlock::rows : OpenBlock::summary;
  check_config(state);
  if ((Size(state.config.batch) * Size(sizeof(std::int64_t))).value() > in.left())
    throw Error("bytes of a state end early: batch is " + std::to_string(state.config.batch));
  state.tokens.resize(static_cast<std::size_t>(state.config.batch));
  in.array(std::span(state.tokens));
  check_tokens(state);
  if (const std::uint64_t expected = array_bytes(state).value(); expected != in.left())
    throw Error("bytes of a state have " + std::to_string(in.left()) + " bytes of arrays; their sizes say " +
                std::to_string(expected));
  return {std::move(state), in};
}

}  // namespace mhla
