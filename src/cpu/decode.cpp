// Decoding on the CPU, written as the definition: what the CUDA kernels are compared with.
#include "cpu/decode.hpp"

#include <algorithm>
#include <functional>
#include <vector>

#include "core/decode.hpp"
#include "cpu/element.hpp"
#include "cpu/feature_map.hpp"

namespace mhla::cpu {
namespace {

template <typename Element, typename Summary, typename T>
class Decoder {
 public:
  Decoder(const DecodeConfig& config, const DecodeArgs& args)
      : config_(config), args_(args), kept_(kept_blocks(config)), Dk_(config.key_dim), Dv_(config.value_dim),
        S_(static_cast<Summary*>(args.memory.S)), z_(static_cast<T*>(args.memory.z)),
        P_(static_cast<Summary*>(args.memory.P)), P_z_(static_cast<T*>(args.memory.P_z)),
        diagonal_(static_cast<T*>(args.memory.diagonal)), folded_S_(static_cast<T*>(args.memory.folded_S)),
        folded_z_(static_cast<T*>(args.memory.folded_z)), k_(static_cast<Element*>(args.memory.k)),
        v_(static_cast<Element*>(args.memory.v)) {}

  void step(std::int64_t tokens) {
    for_each_group(tokens, [&](std::int64_t batch, std::int64_t kv_head) {
      const std::int64_t group = batch * config_.kv_heads + kv_head;
      for (std::int64_t n = 0; n < tokens; ++n) {
        const std::int64_t position = args_.memory.tokens[batch] + n;
        const std::int64_t block = position / config_.block_size, row = position % config_.block_size;
        append(batch, kv_head, n, row);
        for (std::int64_t g = 0; g < queries(); ++g) read(batch, kv_head * queries() + g, n, row);
        if (row + 1 < config_.block_size) continue;
        close(group, block);
        open(batch, kv_head, block + 1);
      }
    });
    for (std::int64_t batch = 0; batch < config_.batch; ++batch) args_.memory.tokens[batch] += tokens;
  }

  void open_all() {
    for_each_group(kept_.slots, [&](std::int64_t batch, std::int64_t kv_head) {
      open(batch, kv_head, args_.memory.tokens[batch] / config_.block_size);
    });
  }

 private:
  std::int64_t queries() const { return config_.heads / config_.kv_heads; }
  std::int64_t mixed_row(std::int64_t batch, std::int64_t head) const {
    return batch * config_.mixed_heads() + (config_.mixing_per_head ? head : head / queries());
  }
  T* z_of(std::int64_t group, std::int64_t block) const {
    return z_ + (group * kept_.slots + block % kept_.slots) * Dk_;
  }
  Summary* S_of(std::int64_t group, std::int64_t block) const {
    return S_ + (group * kept_.slots + block % kept_.slots) * Dk_ * Dv_;
  }
  T features(Element x) const {
    return phi(config_.options.feature_map, static_cast<T>(x)) + static_cast<T>(config_.options.feature_eps);
  }
  template <typename Pointer>
  static auto row_of(const BasicTensor<Pointer>& x, std::int64_t batch, std::int64_t token, std::int64_t head) {
    using Typed = std::conditional_t<std::is_same_v<Pointer, void*>, Element*, const Element*>;
    return static_cast<Typed>(x.data) + batch * x.batch_stride + token * x.token_stride + head * x.head_stride;
  }

  // `summaries`: how many of them a head reads. Other threads take as long to be awake as few of them.
  void for_each_group(std::int64_t summaries, const std::function<void(std::int64_t, std::int64_t)>& body) const {
    constexpr std::int64_t kFew = 1 << 16;
    const bool few = config_.batch * config_.heads * summaries < kFew / std::max<std::int64_t>(1, Dk_ * Dv_);
    const Parallel& parallel = few                             ? serial()
                               : args_.run.parallel != nullptr ? *args_.run.parallel
                                                               : default_parallel();
    parallel.for_each(config_.batch * config_.kv_heads,
                      [&](std::int64_t group) { body(group / config_.kv_heads, group % config_.kv_heads); });
  }

  void append(std::int64_t batch, std::int64_t kv_head, std::int64_t n, std::int64_t row) const {
    const std::int64_t at = (batch * config_.kv_heads + kv_head) * config_.block_size + row;
    std::copy_n(row_of(args_.k, batch, n, kv_head), Dk_, k_ + at * Dk_);
    std::copy_n(row_of(args_.v, batch, n, kv_head), Dv_, v_ + at * Dv_);
  }

  // o of one token and head; its own row is in the open block already.
  void read(std::int64_t batch, std::int64_t head, std::int64_t n, std::int64_t row) const {
    const Element* q_row = row_of(args_.q, batch, n, head);
    std::vector<T> q(static_cast<std::size_t>(Dk_)), o(static_cast<std::size_t>(Dv_));
    for (std::int64_t d = 0; d < Dk_; ++d)
      q[static_cast<std::size_t>(d)] = static_cast<T>(config_.options.scale) * features(q_row[d]);

    const std::int64_t mixed = mixed_row(batch, head);
    T denominator = P_z_ == nullptr ? T(1) : static_cast<T>(config_.options.eps);
    const auto add_row = [&](T weight, T z, const auto* values) {
      if (P_z_ != nullptr) denominator += weight * z;
      for (std::int64_t e = 0; e < Dv_; ++e) o[static_cast<std::size_t>(e)] += weight * static_cast<T>(values[e]);
    };
    for (std::int64_t d = 0; d < Dk_; ++d)
      add_row(q[static_cast<std::size_t>(d)], P_z_ == nullptr ? T(0) : P_z_[mixed * Dk_ + d],
              P_ + (mixed * Dk_ + d) * Dv_);
    const std::int64_t first = (batch * config_.kv_heads + head / queries()) * config_.block_size;
    for (std::int64_t s = first; s <= first + row; ++s) {
      T score = 0;
      for (std::int64_t d = 0; d < Dk_; ++d) score += q[static_cast<std::size_t>(d)] * features(k_[s * Dk_ + d]);
      add_row(diagonal_[mixed] * score, T(1), v_ + s * Dv_);
    }
    Element* o_row = row_of(args_.o, batch, n, head);
    for (std::int64_t e = 0; e < Dv_; ++e)
      o_row[e] = static_cast<Element>(o[static_cast<std::size_t>(e)] / denominator);
  }

  // S_b and z_b of the complete block, and the folding of the one that leaves.
  void close(std::int64_t group, std::int64_t block) const {
    const Element* k = k_ + group * config_.block_size * Dk_;
    const Element* v = v_ + group * config_.block_size * Dv_;
    const std::int64_t leaving = kept_.leaving(block);
    for (std::int64_t d = 0; d < Dk_; ++d) {
      T z = 0;
      std::vector<T> S(static_cast<std::size_t>(Dv_));
      for (std::int64_t s = 0; s < config_.block_size; ++s) {
        const T key = features(k[s * Dk_ + d]);
        z += key;
        for (std::int64_t e = 0; e < Dv_; ++e) S[static_cast<std::size_t>(e)] += key * static_cast<T>(v[s * Dv_ + e]);
      }
      for (std::int64_t e = 0; e < Dv_; ++e)
        S_of(group, block)[d * Dv_ + e] = static_cast<Summary>(S[static_cast<std::size_t>(e)]);
      if (z_ != nullptr) z_of(group, block)[d] = z;
      if (leaving < 0) continue;
      for (std::int64_t e = d * Dv_; e < (d + 1) * Dv_; ++e)
        folded_S_[group * Dk_ * Dv_ + e] += static_cast<T>(S_of(group, leaving)[e]);
      if (z_ != nullptr) folded_z_[group * Dk_ + d] += z_of(group, leaving)[d];
    }
  }

  MixingRow<T> row_of_head(std::int64_t head, std::int64_t block) const {
    const std::int64_t M = kept_.trained;
    const T* matrix = static_cast<const T*>(args_.mixing) + (config_.mixing_per_head ? head * M * M : 0);
    return mixing_row(matrix, M, block, kept_.beyond);
  }

  // P, P_z and m[i, i] for the query heads of a kv head, with block i open.
  void open(std::int64_t batch, std::int64_t kv_head, std::int64_t i) const {
    const std::int64_t group = batch * config_.kv_heads + kv_head;
    const auto mix = [&](const MixingRow<T>& row, std::int64_t size, const T* folded, auto&& summary, auto* to) {
      std::vector<T> sum(static_cast<std::size_t>(size));
      const auto add = [&](T weight, const auto* from) {
        for (std::int64_t n = 0; n < size; ++n) sum[static_cast<std::size_t>(n)] += weight * static_cast<T>(from[n]);
      };
      if (kept_.is_folded(i)) add(row[0], folded + group * size);
      for (std::int64_t b = kept_.first(i); b < i; ++b) add(row[b], summary(group, b));
      std::transform(sum.begin(), sum.end(), to, [](T value) { return std::decay_t<decltype(*to)>(value); });
    };
    const std::int64_t mixed_per_group = config_.mixed_heads() / config_.kv_heads;
    for (std::int64_t m = 0; m < mixed_per_group; ++m) {
      const std::int64_t head = kv_head * queries() + m;
      const std::int64_t mixed = mixed_row(batch, head);
      const MixingRow<T> row = row_of_head(head, i);
      mix(row, Dk_ * Dv_, folded_S_, [&](auto g, auto b) { return S_of(g, b); }, P_ + mixed * Dk_ * Dv_);
      if (P_z_ != nullptr) mix(row, Dk_, folded_z_, [&](auto g, auto b) { return z_of(g, b); }, P_z_ + mixed * Dk_);
      diagonal_[mixed] = row[i];
    }
  }

  const DecodeConfig& config_;
  const DecodeArgs& args_;
  KeptBlocks kept_;
  std::int64_t Dk_, Dv_;
  Summary* S_;
  T* z_;
  Summary* P_;
  T* P_z_;
  T* diagonal_;
  T* folded_S_;
  T* folded_z_;
  Element* k_;
  Element* v_;
};

template <typename Visit>
void with_decoder(const DecodeConfig& config, const DecodeArgs& args, Visit&& visit) {
  with_element_type(config.dtype, [&](auto tag) {
    using Element = typename decltype(tag)::type;
    using T = std::conditional_t<std::is_same_v<Element, double>, double, float>;
    if (config.summary_dtype == DType::bf16)
      visit(Decoder<Element, BFloat16, T>(config, args));
    else
      visit(Decoder<Element, T, T>(config, args));
  });
}

}  // namespace

void decode_step(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args) {
  with_decoder(config, args, [&](auto&& decoder) { decoder.step(tokens); });
}

void decode_open(const DecodeConfig& config, const DecodeArgs& args) {
  with_decoder(config, args, [&](auto&& decoder) { decoder.open_all(); });
}

}  // namespace mhla::cpu
