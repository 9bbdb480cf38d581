// A stream to and from bytes (core/saved_state.hpp).
#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "cpu/element.hpp"
#include "cpu/feature_map.hpp"
#include "cpu/stream/stream.hpp"

namespace mhla::cpu {
namespace {

template <typename T>
void write_summary(ByteWriter& out, const BlockSummary<T>& summary) {
  out.array(std::span<const T>(summary.S));
  out.array(std::span<const T>(summary.z));
}

template <typename T>
void read_summary(ByteReader& in, BlockSummary<T>& summary) {
  in.array(std::span(summary.S));
  in.array(std::span(summary.z));
}

// The part of batch row `row` of an array over all of them.
template <typename Values>
auto part_of(Values& values, std::int64_t row, std::int64_t batch) {
  const std::size_t size = values.size() / static_cast<std::size_t>(batch);
  return std::span(values).subspan(static_cast<std::size_t>(row) * size, size);
}

template <typename T>
void read_converted(ByteReader& in, DType dtype, std::span<T> to) {
  with_element_type(dtype, [&](auto tag) {
    std::vector<typename decltype(tag)::type> values(to.size());
    in.array(std::span(values));
    std::ranges::transform(values, to.begin(), [](auto value) { return static_cast<T>(value); });
  });
}

template <typename To, typename From>
void add(const std::vector<From>& from, std::vector<To>& to) {
  std::ranges::transform(from, to, to.begin(), [](From x, To sum) { return sum + static_cast<To>(x); });
}

bool are_same(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y) || (std::isnan(x) && std::isnan(y));
  });
}

template <typename T>
std::unique_ptr<Stream> restore_as(const SavedState& saved, ByteReader& in) {
  const DecodeConfig& config = saved.config;
  const std::int64_t matrices = config.mixing_per_head ? config.heads : 1;
  std::vector<T> mixing(static_cast<std::size_t>(matrices * config.mixing_blocks * config.mixing_blocks));
  in.array(std::span(mixing));
  std::unique_ptr<Stream> stream = make_stream(config, mixing.data());
  static_cast<StreamOf<T>&>(*stream).read(saved, in);
  return stream;
}

}  // namespace

template <typename T>
BlockSummary<double> StreamOf<T>::left_sum() const {
  BlockSummary<double> sum = folded_sum_;
  sum.S.resize(open_.S.size());
  sum.z.resize(open_.z.size());
  const std::int64_t left = std::max<std::int64_t>(0, kept_.leaving(open_block() - 1) + 1);
  for (std::int64_t b = folded_; b < left; ++b) {
    const BlockSummary<T>& block = *recent_[static_cast<std::size_t>(b - folded_)];
    add(block.S, sum.S);
    add(block.z, sum.z);
  }
  return sum;
}

template <typename T>
std::vector<std::byte> StreamOf<T>::serialize() const {
  if (filled_ == config_.block_size) {  // is saved as the empty block that comes next
    StreamOf closed(*this);
    closed.close_block();
    return closed.serialize();
  }
  SavedState saved;
  static_cast<StateConfig&>(saved.config) = config_;
  saved.config.summary_dtype = accumulation_type(config_.dtype);
  saved.tokens.assign(static_cast<std::size_t>(config_.batch), tokens());
  ByteWriter out = begin_saved_state(saved);
  out.array(std::span<const T>(*mixing_));
  if (kept_.folds) write_summary(out, left_sum());
  for (std::int64_t row = 0; row < config_.batch; ++row)
    for (const auto& summary : recent_) {
      out.array(part_of(summary->S, row, config_.batch));
      out.array(part_of(summary->z, row, config_.batch));
    }
  write_summary(out, open_);
  return finish_saved_state(std::move(out));
}

template <typename T>
void StreamOf<T>::read(const SavedState& saved, ByteReader& in) {
  const auto [least, most] = std::ranges::minmax(saved.tokens);
  if (least != most)
    throw Error("bytes of a state hold batch rows at tokens " + std::to_string(least) + " to " + std::to_string(most) +
                "; on the CPU all rows of a state are at the same");
  const std::int64_t block = saved.block(0), first = saved.first(0);
  BlockSummary<double> sum;
  if (saved.kept().folds) {
    sum = {std::vector<double>(open_.S.size()), std::vector<double>(open_.z.size())};
    read_summary(in, sum);
  }
  folded_ = first;
  std::vector<std::shared_ptr<BlockSummary<T>>> blocks;
  for (std::int64_t b = first; b < block; ++b)
    blocks.push_back(std::make_shared<BlockSummary<T>>(empty_summary(config_.kv_heads)));
  for (std::int64_t row = 0; row < config_.batch; ++row)
    for (const auto& summary : blocks) {
      read_converted(in, saved.config.summary_dtype, part_of(summary->S, row, config_.batch));
      in.array(part_of(summary->z, row, config_.batch));
    }
  recent_.assign(blocks.begin(), blocks.end());
  if (first > 0) {
    folded_sum_ = std::move(sum);
  } else if (saved.kept().folds && saved.open == OpenBlock::summary) {
    const BlockSummary<double> expected = left_sum();
    if (!are_same(sum.S, expected.S) || !are_same(sum.z, expected.z))
      throw Error("bytes of a state hold a sum of blocks that is not that of the blocks they hold");
  }
  if (const std::int64_t excess = kept_.first(block) - folded_; excess > 0) {
    folded_sum_.S.resize(open_.S.size());
    folded_sum_.z.resize(open_.z.size());
    fold(excess);
  }
  saved.open == OpenBlock::rows ? read_open_rows(saved, in) : read_summary(in, open_);
  filled_ = saved.filled(0);
}

// S and z of the open block from its rows of k and v.
template <typename T>
void StreamOf<T>::read_open_rows(const SavedState& saved, ByteReader& in) {
  const std::int64_t Dk = config_.key_dim, Dv = config_.value_dim;
  const auto rows = static_cast<std::size_t>(saved.filled(0));
  for (std::int64_t row = 0; row < config_.batch; ++row) {
    std::vector<T> k(static_cast<std::size_t>(config_.kv_heads * Dk) * rows);
    std::vector<T> v(static_cast<std::size_t>(config_.kv_heads * Dv) * rows);
    read_converted(in, config_.dtype, std::span(k));
    read_converted(in, config_.dtype, std::span(v));
    for (std::int64_t head = 0; head < config_.kv_heads; ++head) {
      const std::int64_t group = row * config_.kv_heads + head;
      for (std::size_t t = 0; t < rows; ++t) {
        const std::size_t token = static_cast<std::size_t>(head) * rows + t;
        const T* k_row = k.data() + token * static_cast<std::size_t>(Dk);
        const T* v_row = v.data() + token * static_cast<std::size_t>(Dv);
        for (std::int64_t d = 0; d < Dk; ++d) {
          const T key = phi(config_.options.feature_map, k_row[d]) + static_cast<T>(config_.options.feature_eps);
          T* S = open_.S.data() + (group * Dk + d) * Dv;
          for (std::int64_t e = 0; e < Dv; ++e) S[e] += key * v_row[e];
          if (normalized()) open_.z[static_cast<std::size_t>(group * Dk + d)] += key;
        }
      }
    }
  }
}

std::unique_ptr<Stream> restore_stream(std::span<const std::byte> bytes) {
  auto [saved, in] = open_saved_state(bytes);
  if (accumulation_type(saved.config.dtype) == DType::f64) return restore_as<double>(saved, in);
  return restore_as<float>(saved, in);
}

template std::vector<std::byte> StreamOf<float>::serialize() const;
template std::vector<std::byte> StreamOf<double>::serialize() const;

}  // namespace mhla::cpu
