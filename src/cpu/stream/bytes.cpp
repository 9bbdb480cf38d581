// A stream as bytes: configuration, counts, matrix, summaries. P_i is not written; it is mixed again when needed.
#include <limits>
#include <string>

#include "cpu/stream/stream.hpp"

namespace mhla::cpu {
namespace {

template <typename Enum>
Enum read_enum(ByteReader& in) {
  const auto value = static_cast<Enum>(in.value<std::uint32_t>());
  static_cast<void>(name(value));
  return value;
}

void write_config(ByteWriter& out, const StateConfig& config) {
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
}

StateConfig read_config(ByteReader& in) {
  StateConfig config;
  config.dtype = read_enum<DType>(in);
  for (std::int64_t* value : {&config.batch, &config.heads, &config.kv_heads, &config.key_dim, &config.value_dim,
                              &config.block_size, &config.mixing_blocks})
    *value = in.value<std::int64_t>();
  config.mixing_per_head = in.value<std::uint32_t>() != 0;
  config.options.feature_map = read_enum<FeatureMap>(in);
  config.options.normalizer = read_enum<Normalizer>(in);
  config.options.masking = Masking::token_causal;
  config.options.algorithm = read_enum<Algorithm>(in);
  for (double* value : {&config.options.scale, &config.options.eps, &config.options.feature_eps})
    *value = in.value<double>();
  config.beyond = read_enum<BeyondTrained>(in);
  return config;
}

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

void check_size(const StateConfig& config, const StreamCounts& counts, std::size_t left) {
  using Size = CheckedSize;
  const Size element(accumulation_type(config.dtype) == DType::f64 ? 8 : 4);
  const Size width(Size(config.value_dim) + Size(config.options.normalizer == Normalizer::none ? 0 : 1));
  const Size summary = Size(config.batch) * Size(config.kv_heads) * Size(config.key_dim) * width;
  const Size blocks(config.mixing_blocks);
  const Size mixing = Size(config.mixing_per_head ? config.heads : 1) * blocks * blocks;
  const Size folded = counts.folded > 0 ? summary * Size(8) : Size(0);
  const Size total = (mixing + summary * (Size(counts.recent) + Size(1))) * element + folded;
  if (total.value() != left)
    throw Error("bytes of a state have " + std::to_string(left) + " bytes of payload; their sizes say " +
                std::to_string(total.value()));
}

template <typename T>
void write_summary(ByteWriter& out, const BlockSummary<T>& summary) {
  out.array(std::span<const T>(summary.S));
  out.array(std::span<const T>(summary.z));
}

template <typename T>
void read_summary(ByteReader& in, BlockSummary<T>& summary) {
  in.array(std::span<T>(summary.S));
  in.array(std::span<T>(summary.z));
}

template <typename T>
std::unique_ptr<Stream> read_as(ByteReader& in, const StateConfig& config, const StreamCounts& counts) {
  const std::int64_t matrices = config.mixing_per_head ? config.heads : 1;
  std::vector<T> mixing(static_cast<std::size_t>(matrices * config.mixing_blocks * config.mixing_blocks));
  in.array(std::span<T>(mixing));
  std::unique_ptr<Stream> stream = make_stream(config, mixing.data());
  static_cast<StreamOf<T>&>(*stream).read(in, counts);
  return stream;
}

}  // namespace

template <typename T>
void StreamOf<T>::write(ByteWriter& out) const {
  write_config(out, config_);
  out.value(folded_);
  out.value(static_cast<std::int64_t>(recent_.size()));
  out.value(filled_);
  out.array(std::span<const T>(*mixing_));
  if (folded_ > 0) write_summary(out, folded_sum_);
  for (const auto& summary : recent_) write_summary(out, *summary);
  write_summary(out, open_);
}

template <typename T>
void StreamOf<T>::read(ByteReader& in, const StreamCounts& counts) {
  constexpr std::int64_t kMostBlocks = std::int64_t{1} << 61;
  const bool in_range = counts.folded >= 0 && counts.recent >= 0 && counts.filled >= 0 &&
                        counts.filled <= config_.block_size &&
                        counts.folded < kMostBlocks / config_.block_size - counts.recent;
  const std::int64_t blocks = in_range ? counts.folded + counts.recent : 0;
  const bool untrained = config_.beyond == BeyondTrained::error && blocks + (counts.filled > 0 ? 1 : 0) > trained();
  if (!in_range || untrained || counts.folded != kept_.first(blocks))
    throw Error("bytes of a state hold counts that cannot be: " + std::to_string(counts.folded) + " folded and " +
                std::to_string(counts.recent) + " recent blocks, " + std::to_string(counts.filled) +
                " tokens in the open one");
  if (counts.folded > 0) {
    folded_sum_.S.resize(open_.S.size());
    folded_sum_.z.resize(open_.z.size());
    read_summary(in, folded_sum_);
  }
  folded_ = counts.folded;
  for (std::int64_t n = 0; n < counts.recent; ++n) {
    auto summary = std::make_shared<BlockSummary<T>>(empty_summary(config_.kv_heads));
    read_summary(in, *summary);
    recent_.push_back(std::move(summary));
  }
  read_summary(in, open_);
  filled_ = counts.filled;
}

std::unique_ptr<Stream> read_stream(ByteReader& in) {
  const StateConfig config = read_config(in);
  StreamCounts counts;
  for (std::int64_t* value : {&counts.folded, &counts.recent, &counts.filled}) *value = in.value<std::int64_t>();
  check_size(config, counts, in.left());
  if (accumulation_type(config.dtype) == DType::f64) return read_as<double>(in, config, counts);
  return read_as<float>(in, config, counts);
}

template void StreamOf<float>::write(ByteWriter&) const;
template void StreamOf<double>::write(ByteWriter&) const;

}  // namespace mhla::cpu
