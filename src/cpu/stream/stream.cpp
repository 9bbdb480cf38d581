// Streams: construction, and the keeping of finished blocks.
#include "cpu/stream/stream.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "core/sizes.hpp"
#include "core/validate.hpp"

namespace mhla::cpu {
namespace {

template <typename T>
void check_mixing(const StateConfig& config, const T* mixing) {
  if (mixing == nullptr && config.mixing_blocks > 0) throw Error("mixing is null; a state needs a matrix");
  const std::int64_t M = config.mixing_blocks;
  for (std::int64_t h = 0; h < (config.mixing_per_head ? config.heads : 1); ++h)
    for (std::int64_t i = 0; i < M; ++i)
      for (std::int64_t b = 0; b <= i; ++b)
        if (!std::isfinite(mixing[(h * M + i) * M + b]))
          throw Error("mixing[" + (config.mixing_per_head ? std::to_string(h) + ", " : std::string()) +
                      std::to_string(i) + ", " + std::to_string(b) + "] is not finite");
}

template <typename T>
std::size_t held(const BlockSummary<T>& summary) {
  return (summary.S.size() + summary.z.size()) * sizeof(T);
}

template <typename To, typename From>
void add_scaled(To factor, const From* from, std::int64_t count, To* to) {
  for (std::int64_t n = 0; n < count; ++n) to[n] += factor * static_cast<To>(from[n]);
}

}  // namespace

std::unique_ptr<Stream> make_stream(const StateConfig& config, const void* mixing) {
  validate(config);
  StateConfig settled = config;
  settled.options.masking = Masking::token_causal;
  if (accumulation_type(config.dtype) == DType::f64)
    return std::make_unique<StreamOf<double>>(settled, static_cast<const double*>(mixing));
  return std::make_unique<StreamOf<float>>(settled, static_cast<const float*>(mixing));
}

template <typename T>
StreamOf<T>::StreamOf(const StateConfig& config, const T* mixing)
    : config_(config), kept_(config.beyond, config.mixing_blocks) {
  check_mixing(config, mixing);
  mixing_ = std::make_shared<const std::vector<T>>(mixing, mixing + mixing_heads() * trained() * trained());
  open_ = empty_summary(config.kv_heads);
  P_ = empty_summary(mixed_heads());
  diagonal_.resize(static_cast<std::size_t>(mixing_heads()));
}

template <typename T>
BlockSummary<T> StreamOf<T>::empty_summary(std::int64_t heads) const {
  BlockSummary<T> summary;
  summary.S.resize(static_cast<std::size_t>(config_.batch * heads * summary_size()));
  if (normalized()) summary.z.resize(static_cast<std::size_t>(config_.batch * heads * config_.key_dim));
  return summary;
}

template <typename T>
std::size_t StreamOf<T>::bytes() const {
  std::size_t total = held(folded_sum_) + held(open_) + held(P_);
  for (const auto& summary : recent_) total += held(*summary);
  return total;
}

template <typename T>
MixingRow<T> StreamOf<T>::weights_of(std::int64_t mixing_head, std::int64_t block) const {
  return mixing_row(mixing_->data() + mixing_head * trained() * trained(), trained(), block, config_.beyond);
}

template <typename T>
void StreamOf<T>::check_room(std::int64_t tokens) const {
  const std::int64_t seen = this->tokens();
  const std::int64_t most = config_.beyond == BeyondTrained::interpolate
                                ? std::min(kMostTokens, kMostKeptBlocks * config_.block_size)
                                : kMostTokens;
  if (tokens > most - seen)
    throw Error("tokens is " + std::to_string(tokens) + "; after " + std::to_string(seen) + " it may be " +
                std::to_string(most - seen));
  if (config_.beyond != BeyondTrained::error) return;
  const std::int64_t blocks = divide_up(seen + tokens, config_.block_size);
  if (blocks > trained())
    throw Error("tokens is " + std::to_string(tokens) + " after " + std::to_string(seen) + ", which reaches " +
                std::to_string(blocks) + " blocks; the mixing matrix was trained for " + std::to_string(trained()) +
                " and `beyond` is error; it may be clamp, running-mean or interpolate");
}

// A full block k and an empty block k + 1 are the same state, so a failure further on needs no undoing of this.
template <typename T>
void StreamOf<T>::close_block() {
  auto finished = std::make_shared<BlockSummary<T>>(empty_summary(config_.kv_heads));
  const std::int64_t next = open_block() + 1;
  const std::int64_t excess = kept_.first(next) - folded_;
  if (excess > 0 && folded_sum_.S.empty()) {
    BlockSummary<double> sum;
    sum.S.resize(open_.S.size());
    sum.z.resize(open_.z.size());
    folded_sum_ = std::move(sum);
  }
  recent_.push_back(finished);
  std::swap(*finished, open_);
  filled_ = 0;
  if (excess > 0) fold(excess);
}

template <typename T>
void StreamOf<T>::fold(std::int64_t count) {
  for (; count > 0; --count, ++folded_) {
    const BlockSummary<T>& oldest = *recent_.front();
    add_scaled(1.0, oldest.S.data(), static_cast<std::int64_t>(oldest.S.size()), folded_sum_.S.data());
    add_scaled(1.0, oldest.z.data(), static_cast<std::int64_t>(oldest.z.size()), folded_sum_.z.data());
    recent_.pop_front();
  }
}

template <typename T>
void StreamOf<T>::mix(const Parallel& parallel) {
  const std::int64_t block = open_block();
  mixed_block_ = -1;
  // Of each mixing head: the weight of the folded blocks, if any, and of each recent one.
  std::vector<std::vector<T>> weights(static_cast<std::size_t>(mixing_heads()));
  for (std::int64_t h = 0; h < mixing_heads(); ++h) {
    const MixingRow<T> entries = weights_of(h, block);
    auto& w = weights[static_cast<std::size_t>(h)];
    if (folded_ > 0) w.push_back(entries[0]);
    for (std::int64_t b = folded_; b < block; ++b) w.push_back(entries[b]);
    diagonal_[static_cast<std::size_t>(h)] = entries[block];
  }

  // Strips short enough to stay in the first-level cache while all summaries are added to them.
  constexpr std::int64_t kStrip = 2048;
  const auto mix_array = [&](std::int64_t n, std::int64_t size, auto member, std::vector<T>& to_array) {
    const std::int64_t batch = n / mixed_heads();
    const std::int64_t head = n % mixed_heads();
    const std::int64_t kv_head = head * config_.kv_heads / mixed_heads();
    const std::vector<T>& w = weights[config_.mixing_per_head ? static_cast<std::size_t>(head) : 0];
    const std::int64_t from = (batch * config_.kv_heads + kv_head) * size;
    for (std::int64_t begin = 0; begin < size; begin += kStrip) {
      const std::int64_t count = std::min(kStrip, size - begin);
      T* to = to_array.data() + n * size + begin;
      std::fill_n(to, count, T(0));
      std::size_t at = 0;
      if (folded_ > 0) add_scaled(w[at++], member(folded_sum_) + from + begin, count, to);
      for (const auto& summary : recent_) add_scaled(w[at++], member(*summary) + from + begin, count, to);
    }
  };
  const std::function<void(std::int64_t)> task = [&](std::int64_t n) {
    mix_array(n, summary_size(), [](const auto& summary) { return summary.S.data(); }, P_.S);
    if (normalized()) mix_array(n, config_.key_dim, [](const auto& summary) { return summary.z.data(); }, P_.z);
  };
  parallel.for_each(config_.batch * mixed_heads(), task);
  mixed_block_ = block;
}

template class StreamOf<float>;
template class StreamOf<double>;

}  // namespace mhla::cpu
