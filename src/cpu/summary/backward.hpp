// The backward pass in the summary form for one unit (sequence, kv head): memory, loads, and the steps that
// backward.cpp, query_gradient.cpp and key_gradient.cpp take.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "cpu/causal_chunk.hpp"
#include "cpu/cpu_call.hpp"
#include "cpu/mixing_gradient.hpp"
#include "cpu/stages.hpp"
#include "cpu/summary/denominator.hpp"
#include "cpu/summary/denominator_gradient.hpp"
#include "cpu/summary/kept.hpp"
#include "cpu/summary/state_tensors.hpp"

namespace mhla::cpu::summary {

// Memory of one worker.
template <typename T>
struct BackwardScratch {
  Tile<T> q, k, v, o, d_o, q_den, k_den, d_q, d_k, d_v, d_den_rows, own;
  CausalChunk<T> causal;
  BlockProducts<T> products;
  Prefetch prefetch;
  T* inverse;     // 1 / denominator of a chunk's tokens
  T* d_den;       // gradient of the denominator
  T* running_z;   // sum of the open block's keys
  T* suffix_z;    // per query head of the group: sum over later tokens
  T* square;      // [Dv, Dk]: G_i of a block of several chunks, or the open block's running summary
  T* running_S;   // [Dv, Dk]
  T* transposed;  // [Dk, Dv]
  T* strip;

  BackwardScratch(Workspace& w, const CpuCall<T>& call)
      : q(w, call.p.key_dim), k(w, call.p.key_dim), v(w, call.p.value_dim), o(w, call.p.value_dim),
        d_o(w, call.p.value_dim), q_den(w, call.p.key_dim), k_den(w, call.p.key_dim), d_q(w, call.p.key_dim),
        d_k(w, call.p.key_dim), d_v(w, call.p.value_dim), d_den_rows(w, call.p.key_dim), own(w, call.p.key_dim),
        causal(w, std::max(call.p.key_dim, call.p.value_dim)), products(w, call.most_blocks()),
        inverse(w.take<T>(kTileTokens)), d_den(w.take<T>(kTileTokens)), running_z(w.take<T>(padded<T>(call.p.key_dim))),
        suffix_z(w.take<T>(call.group * padded<T>(call.p.key_dim))),
        square(w.take<T>(call.p.value_dim * padded<T>(call.p.key_dim))),
        running_S(w.take<T>(call.p.value_dim * padded<T>(call.p.key_dim))),
        transposed(w.take<T>(call.p.key_dim * padded<T>(call.p.value_dim))),
        strip(w.take<T>(strip_elements<T>(call.most_blocks()))) {}
};

template <typename T>
void clear(const Tile<T>& tile, std::int64_t tokens) {
  for (std::int64_t panel = 0; panel < tile.panels(); ++panel)
    for (std::int64_t t = 0; t < tokens; ++t)
      std::fill_n(tile.panel(panel) + t * kTileStride<T>, tile.padded_width(panel), T(0));
}

template <typename T>
class Backward {
 public:
  Backward(const CpuCall<T>& call, const BackwardArgs* args, MixingGradient<T>* d_mixing, Workspace& w, Team team)
      : call_(call), args_(args), d_mixing_(d_mixing), team_(team), kernel_(call.kernel), M_(call.most_blocks()),
        width_(call.p.value_dim * padded<T>(call.p.key_dim)),
        stride_(summary_stride<T>(call.p.value_dim, call.p.key_dim)), S_(w.take<T>(M_ * stride_)),
        mixed_(w.take<T>(std::max<std::int64_t>(call.layout.most_blocks(), 1) * stride_)),
        d_S_(call.group == 1 ? S_ : w.take<T>(M_ * stride_)), weights_(w.take<T>(M_ * M_)),
        own_gradient_(w.take<T>(M_)),
        inverse_(w.take<T>(call.has_denominator() && call.token_causal ? call.group * call.p.partition.tokens() : 0)),
        d_den_(w.take<T>(call.has_denominator() && call.token_causal ? call.group * call.p.partition.tokens() : 0)),
        denominator_(w, call, M_), gradient_(w, call, denominator_, M_),
        kept_(call, args == nullptr ? nullptr : const_cast<void*>(args->kept)),  // only read
        initial_(call, args == nullptr ? ConstSummaries{} : args->in.initial, call.p.initial_blocks()),
        d_initial_(call, args == nullptr ? Summaries{} : args->d_initial, call.p.initial_blocks()),
        d_final_(call, args == nullptr ? ConstSummaries{} : args->d_final, call.final_blocks) {
    for (int worker = 0; worker < team.workers(); ++worker) {
      scratch_.emplace_back(w, call);
      strips_.push_back(scratch_.back().strip);
    }
  }
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

  void run(std::int64_t unit, std::int64_t part);

 private:
  class QueryProduct;

  // backward.cpp
  void load_initial_state();
  void load_kept(std::int64_t unit);
  void summarize(BackwardScratch<T>& scratch, std::int64_t local);
  void mix_summaries(std::int64_t head);
  void mixing_gradient(std::int64_t head, std::int64_t part);
  void unmix_gradients(std::int64_t head);
  void add_final_state_gradient();
  void store_initial_gradient();

  // query_gradient.cpp
  void authors_denominators(std::int64_t head);
  void load_output_gradient(BackwardScratch<T>& scratch, const Chunk& chunk, std::int64_t head) const;
  void store_query_gradient(BackwardScratch<T>& scratch, const Chunk& chunk, std::int64_t head) const;
  void query_gradient(BackwardScratch<T>& scratch, std::int64_t local, std::int64_t head);
  void query_gradient_causal(BackwardScratch<T>& scratch, std::int64_t local, std::int64_t head);
  void remember_denominators(const BackwardScratch<T>& scratch, const Chunk& chunk, std::int64_t head);

  // key_gradient.cpp
  void transpose_gradient(BackwardScratch<T>& scratch, std::int64_t block) const;
  void key_products(BackwardScratch<T>& scratch, std::int64_t block, std::int64_t tokens) const;
  void store_key_gradients(BackwardScratch<T>& scratch, const Chunk& chunk) const;
  void key_gradient(BackwardScratch<T>& scratch, std::int64_t local);
  void key_gradient_causal(BackwardScratch<T>& scratch, std::int64_t local);

  std::int64_t first_head() const { return kv_ * call_.group; }
  T* S(std::int64_t block) const { return S_ + block * stride_; }
  T* d_S(std::int64_t block) const { return d_S_ + block * stride_; }
  T* mixed(std::int64_t local) const { return mixed_ + local * stride_; }
  const T* mixing_row(std::int64_t head, std::int64_t i) const {
    return call_.mixing(args_->in, s_, head) + i * call_.p.mixing_blocks;
  }
  bool continues_initial_block(std::int64_t local) const { return local == 0 && call_.layout.filled() > 0; }
  bool separate_denominator() const { return call_.p.separate_denominator; }

  void transpose(const T* summary, T* to) const {
    const auto& p = call_.p;
    if (padded<T>(p.key_dim) != p.key_dim) std::fill_n(to, width_, T(0));
    kernel_.transpose(p.key_dim, p.value_dim, summary, padded<T>(p.value_dim), to, padded<T>(p.key_dim));
  }

  void load_keys(BackwardScratch<T>& scratch, const Chunk& chunk) const {
    call_.load(args_->in.k, call_.key_features, s_, kv_, chunk, scratch.k);
    call_.load(args_->in.v, call_.no_features, s_, kv_, chunk, scratch.v);
  }
  void prefetch_keys(BackwardScratch<T>& scratch, const Chunk& next) const {
    scratch.prefetch.clear();
    call_.prefetch(args_->in.k, s_, kv_, next, call_.p.key_dim, scratch.prefetch);
    call_.prefetch(args_->in.v, s_, kv_, next, call_.p.value_dim, scratch.prefetch);
  }
  void prefetch_queries(BackwardScratch<T>& scratch, const Chunk& chunk, const Chunk& next, std::int64_t head) const {
    scratch.prefetch.clear();
    call_.prefetch(args_->d_q, s_, head, chunk, call_.p.key_dim, scratch.prefetch);
    call_.prefetch(args_->in.q, s_, head, next, call_.p.key_dim, scratch.prefetch);
    call_.prefetch(args_->d_o, s_, head, next, call_.p.value_dim, scratch.prefetch);
    if (call_.has_denominator()) call_.prefetch(args_->o, s_, head, next, call_.p.value_dim, scratch.prefetch);
    if (!call_.token_causal) return;
    call_.prefetch(args_->in.k, s_, kv_, next, call_.p.key_dim, scratch.prefetch);
    call_.prefetch(args_->in.v, s_, kv_, next, call_.p.value_dim, scratch.prefetch);
  }
  const Tile<T>& denominator_keys(BackwardScratch<T>& scratch, const Chunk& chunk) const {
    if (!separate_denominator()) return scratch.k;
    call_.load(args_->in.k_den, call_.key_features, s_, kv_, chunk, scratch.k_den);
    return scratch.k_den;
  }
  const Tile<T>& denominator_queries(BackwardScratch<T>& scratch, const Chunk& chunk, std::int64_t head) const {
    if (!separate_denominator()) return scratch.q;
    call_.load(args_->in.q_den, call_.query_features, s_, head, chunk, scratch.q_den);
    return scratch.q_den;
  }

  void scale(const Tile<T>& tile, std::int64_t tokens, const T* factor) const {
    for (std::int64_t panel = 0; panel < tile.panels(); ++panel)
      kernel_.scale_rows(tokens, tile.padded_width(panel), factor, tile.panel(panel));
  }

  // The gradient of q_den goes into d_q's tile unless there is a separate tensor for it.
  const Tile<T>& denominator_gradient_rows(BackwardScratch<T>& scratch, std::int64_t tokens,
                                           const Tile<T>& shared) const {
    if (!separate_denominator()) return shared;
    clear(scratch.d_den_rows, tokens);
    return scratch.d_den_rows;
  }

  std::int64_t denominator_place(const Chunk& chunk, std::int64_t head) const {
    return (head - first_head()) * call_.p.partition.tokens() + chunk.runs[0].token - s_.first_token;
  }

  const CpuCall<T>& call_;
  const BackwardArgs* args_;
  MixingGradient<T>* d_mixing_;
  Team team_;
  const Kernels<T>& kernel_;
  std::int64_t M_;
  std::int64_t width_;
  std::int64_t stride_;
  T* S_;      // S_b^T
  T* mixed_;  // S~_i^T, then G_i^T
  T* d_S_;    // dS_b^T
  T* weights_;
  T* own_gradient_;  // dm[i, i] inside token-causal blocks
  T* inverse_;       // per (head of the group, token)
  T* d_den_;
  Denominator<T> denominator_;
  DenominatorGradient<T> gradient_;
  Kept<T> kept_;
  StateTensors<T, const void*> initial_;
  StateTensors<T, void*> d_initial_;
  StateTensors<T, const void*> d_final_;
  std::deque<BackwardScratch<T>> scratch_;
  std::vector<T*> strips_;

  Sequence s_;
  std::int64_t kv_ = 0;
  std::int64_t i0_ = 0;
  std::int64_t blocks_ = 0;
  std::int64_t total_ = 0;
  Mixing<T> block_mixing_{};
};

}  // namespace mhla::cpu::summary
