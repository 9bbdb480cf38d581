// Many tokens at once, as calls in the summary form that start from the stream's summaries.
//
// Up to the trained blocks one call does, with the matrix as it is. Beyond, a call sees the folded blocks as one block
// that stands for their sum, then the recent ones, then its own, under a matrix made of those blocks' rows.
#include <algorithm>
#include <new>
#include <string>

#include "core/sizes.hpp"
#include "core/validate.hpp"
#include "cpu/algorithms.hpp"
#include "cpu/stream/stream.hpp"

namespace mhla::cpu {
namespace {

constexpr std::int64_t kLeastPiece = 16;  // blocks: enough to share the cost of handing the history over

class AlignedBuffer {
 public:
  explicit AlignedBuffer(std::size_t bytes) : data_(bytes == 0 ? nullptr : ::operator new(bytes, kAlignment)) {}
  ~AlignedBuffer() { ::operator delete(data_, kAlignment); }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  void* data() const { return data_; }

 private:
  static constexpr std::align_val_t kAlignment{64};
  void* data_;
};

template <typename Pointer>
BasicTensor<Pointer> from_token(BasicTensor<Pointer> x, std::int64_t token, DType dtype) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, void*>, std::byte*, const std::byte*>;
  if (x.data != nullptr)
    x.data = static_cast<Byte>(x.data) + token * x.token_stride * static_cast<std::int64_t>(element_size(dtype));
  return x;
}

StreamTensors from_token(const StreamTensors& x, std::int64_t token, DType dtype) {
  return {from_token(x.q, token, dtype), from_token(x.k, token, dtype), from_token(x.v, token, dtype),
          from_token(x.o, token, dtype)};
}

}  // namespace

template <typename T>
struct StreamOf<T>::Piece {
  std::int64_t tokens;
  const T* mixing;
  std::int64_t mixing_blocks;
  std::int64_t history;  // blocks before the open one, as the call counts them
};

template <typename T>
void StreamOf<T>::prefill(std::int64_t tokens, const StreamTensors& x, const Parallel& parallel) {
  validate(config_, tokens, x.q, x.k, x.v, x.o);
  check_room(tokens);
  StreamOf next(*this);
  const std::int64_t trained_tokens = trained() * config_.block_size;
  const std::int64_t within = std::clamp<std::int64_t>(trained_tokens - this->tokens(), 0, tokens);
  if (within > 0) next.prefill_trained(within, x, parallel);
  for (std::int64_t done = within; done < tokens;) {
    if (next.filled_ == config_.block_size) next.close_block();
    const std::int64_t before = next.tokens();
    next.prefill_beyond(tokens - done, from_token(x, done, config_.dtype), parallel);
    done += next.tokens() - before;
  }
  *this = std::move(next);
}

template <typename T>
void StreamOf<T>::prefill_trained(std::int64_t tokens, const StreamTensors& x, const Parallel& parallel) {
  run({tokens, mixing_->data(), trained(), open_block()}, x, parallel);
}

template <typename T>
void StreamOf<T>::prefill_beyond(std::int64_t tokens, const StreamTensors& x, const Parallel& parallel) {
  const std::int64_t history = kept_.history(open_block());
  const std::int64_t most_blocks = std::max({kLeastPiece, trained(), history});
  const std::int64_t own = std::min(most_blocks, divide_up(filled_ + tokens, config_.block_size));
  const std::int64_t piece = std::min(tokens, own * config_.block_size - filled_);
  const std::vector<T> mixing = mixing_from(kept_, std::span<const T>(*mixing_), mixing_heads(), open_block(), own);
  run({piece, mixing.data(), history + own, history}, x, parallel);
}

template <typename T>
void StreamOf<T>::run(const Piece& piece, const StreamTensors& x, const Parallel& parallel) {
  Problem problem;
  problem.dtype = config_.dtype;
  problem.batch = config_.batch;
  problem.heads = config_.heads;
  problem.kv_heads = config_.kv_heads;
  problem.key_dim = config_.key_dim;
  problem.value_dim = config_.value_dim;
  problem.partition = Partition::line(piece.tokens, config_.block_size);
  problem.options = config_.options;
  problem.options.algorithm = Algorithm::summary;
  problem.mixing_blocks = piece.mixing_blocks;
  problem.mixing_per_head = config_.mixing_per_head;
  problem.initial_tokens = piece.history * config_.block_size + filled_;
  validate(problem);
  require_size("parallel.threads", parallel.threads, 0, kMostThreads);
  const int threads = parallel.threads == 0 ? default_parallel().threads : parallel.threads;
  const std::size_t workspace_bytes = summary::forward_workspace<T>(problem, threads);

  const auto allocate = [&](std::int64_t blocks) {
    BlockSummary<T> summaries;
    summaries.S.resize(static_cast<std::size_t>(groups() * blocks * summary_size()));
    if (normalized()) summaries.z.resize(static_cast<std::size_t>(groups() * blocks * config_.key_dim));
    return summaries;
  };
  BlockSummary<T> history;
  if (problem.initial_tokens > 0) {
    history = allocate(problem.initial_blocks());
    gather(history);
  }
  BlockSummary<T> final_state = allocate(problem.final_blocks());
  const AlignedBuffer workspace(workspace_bytes);

  ForwardArgs args;
  args.in.q = x.q;
  args.in.k = x.k;
  args.in.v = x.v;
  args.in.mixing = piece.mixing;
  if (problem.initial_tokens > 0) args.in.initial = {history.S.data(), normalized() ? history.z.data() : nullptr};
  args.o = x.o;
  args.final_state = {final_state.S.data(), normalized() ? final_state.z.data() : nullptr};
  args.run = {workspace.data(), workspace_bytes, &parallel};
  validate(problem, args);
  summary::forward<T>(problem, args, parallel, threads);
  absorb(piece, final_state);
}

// The history as one array: [batch, kv_heads, blocks, Dk, Dv].
template <typename T>
void StreamOf<T>::gather(BlockSummary<T>& history) const {
  const auto gather_array = [&](std::int64_t size, auto member, std::vector<T>& to) {
    const std::int64_t blocks = static_cast<std::int64_t>(to.size()) / (std::max<std::int64_t>(1, groups()) * size);
    const auto put = [&](std::int64_t at, const auto* from) {
      for (std::int64_t group = 0; group < groups(); ++group)
        std::transform(from + group * size, from + (group + 1) * size, to.begin() + (group * blocks + at) * size,
                       [](auto value) { return static_cast<T>(value); });
    };
    std::int64_t at = 0;
    if (folded_ > 0) put(at++, member(folded_sum_));
    for (const auto& summary : recent_) put(at++, member(*summary));
    if (filled_ > 0) put(at, member(open_));
  };
  gather_array(summary_size(), [](const auto& summary) { return summary.S.data(); }, history.S);
  if (normalized()) gather_array(config_.key_dim, [](const auto& summary) { return summary.z.data(); }, history.z);
}

template <typename T>
void StreamOf<T>::absorb(const Piece& piece, const BlockSummary<T>& final_state) {
  const std::int64_t total = filled_ + piece.tokens;
  const std::int64_t own = divide_up(total, config_.block_size);
  const auto take = [&](std::int64_t at, std::int64_t size, const std::vector<T>& from, std::vector<T>& to) {
    for (std::int64_t group = 0; group < groups(); ++group)
      std::copy_n(from.begin() + (group * (piece.history + own) + at) * size, size, to.begin() + group * size);
  };
  for (std::int64_t i = 0; i < own; ++i) {
    if (i > 0) close_block();
    take(piece.history + i, summary_size(), final_state.S, open_.S);
    if (normalized()) take(piece.history + i, config_.key_dim, final_state.z, open_.z);
    filled_ = std::min(config_.block_size, total - i * config_.block_size);
  }
}

template void StreamOf<float>::prefill(std::int64_t, const StreamTensors&, const Parallel&);
template void StreamOf<double>::prefill(std::int64_t, const StreamTensors&, const Parallel&);

}  // namespace mhla::cpu
