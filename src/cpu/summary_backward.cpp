// Backward pass in the summary form, from the forward pass's output and, where they were kept, its summaries (else 1.
// and the mixing of 2. are done again). Summaries are held transposed, [Dv, Dk], because dQ = dU S~^T and dK = V dS^T
// read them that way. Per unit (sequence, kv head):
//   1. every block: S_b^T = V_b^T phi(K_b)
//   2. per query head: S~_i^T, then every block: dU = dO / den, dQ_i = dU S~_i^T, G_i^T = dU^T phi(Q_i) in its place;
//      dm[i, b] += <G_i, S_b>;  dS_b^T += sum_i m[i, b] G_i^T
//   3. every block: dK_b = V_b dS_b^T, dV_b = phi(K_b) dS_b
// A token-causal block adds the terms inside its chunks, which use m[i, i] and are recomputed where they are needed.
#include <algorithm>
#include <deque>
#include <vector>

#include "cpu/algorithms.hpp"
#include "cpu/call.hpp"
#include "cpu/causal_chunk.hpp"
#include "cpu/denominator.hpp"
#include "cpu/denominator_gradient.hpp"
#include "cpu/kept.hpp"
#include "cpu/mixing_gradient.hpp"
#include "cpu/stages.hpp"
#include "cpu/state_tensors.hpp"

namespace mhla::cpu::summary {
namespace {

// Memory of one worker.
template <typename T>
struct Scratch {
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

  Scratch(Workspace& w, const Call<T>& call)
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
  Backward(const Call<T>& call, const BackwardArgs* args, MixingGradient<T>* d_mixing, Workspace& w, Team team)
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

  void run(std::int64_t unit, std::int64_t part) {
    s_ = &call_.sequence(unit);
    kv_ = call_.kv_head(unit);
    i0_ = call_.layout.first_block();
    blocks_ = s_->blocks;
    total_ = std::max(i0_ + blocks_, initial_.blocks());
    initial_.open(*s_, kv_);
    d_initial_.open(*s_, kv_);
    d_final_.open(*s_, kv_);
    if (kept_.given()) {
      load_kept(unit);
    } else {
      load_initial_state();
      team_.for_each(blocks_, [&](int worker, std::int64_t b) { summarize(scratch_[worker], b); });
    }
    if (call_.has_authors_denominator())
      for (std::int64_t b = 0; b < total_; ++b) gradient_.clear_z(b);
    for (std::int64_t h = first_head(); h < first_head() + call_.group; ++h) {
      mix_summaries(h);
      if (call_.has_authors_denominator()) reference_denominators(h);
      team_.for_each(blocks_, [&](int worker, std::int64_t b) {
        if (call_.token_causal)
          query_gradient_causal(scratch_[worker], b, h);
        else
          query_gradient(scratch_[worker], b, h);
      });
      if (args_->d_mixing != nullptr) mixing_gradient(h, part);
      unmix_gradients(h);
    }
    add_final_state_gradient();
    team_.for_each(blocks_, [&](int worker, std::int64_t b) {
      if (call_.token_causal)
        key_gradient_causal(scratch_[worker], b);
      else
        key_gradient(scratch_[worker], b);
    });
    if (d_initial_.has_S()) store_initial_gradient();
  }

 private:
  std::int64_t first_head() const { return kv_ * call_.group; }
  T* S(std::int64_t block) const { return S_ + block * stride_; }
  T* d_S(std::int64_t block) const { return d_S_ + block * stride_; }
  T* mixed(std::int64_t local) const { return mixed_ + local * stride_; }
  const T* mixing_row(std::int64_t head, std::int64_t i) const {
    return call_.mixing(args_->in, head) + i * call_.p.mixing_blocks;
  }
  bool continues_initial_block(std::int64_t local) const { return local == 0 && call_.layout.filled() > 0; }
  bool separate_denominator() const { return call_.p.separate_denominator; }
  void load_initial_state() {
    for (std::int64_t b = 0; b < initial_.blocks(); ++b) {
      load_transposed(call_.p, initial_.S(b), false, S(b));
      if (call_.has_denominator()) denominator_.set_z(b, initial_.z(b));
    }
  }

  void load_kept(std::int64_t unit) {
    kept_.open(unit);
    denominator_.place_sums(kept_.z(), kept_.mixed_z());
    team_.for_each(blocks_, [&](int, std::int64_t b) { transpose(kept_.S(b), S(b)); });
  }
  void transpose(const T* summary, T* to) const {
    const auto& p = call_.p;
    if (padded<T>(p.key_dim) != p.key_dim) std::fill_n(to, width_, T(0));
    kernel_.transpose(p.key_dim, p.value_dim, summary, padded<T>(p.value_dim), to, padded<T>(p.key_dim));
  }

  void load_keys(Scratch<T>& scratch, const Chunk& chunk) const {
    call_.load(args_->in.k, call_.key_features, *s_, kv_, chunk, scratch.k);
    call_.load(args_->in.v, call_.no_features, *s_, kv_, chunk, scratch.v);
  }
  void prefetch_keys(Scratch<T>& scratch, const Chunk& next) const {
    scratch.prefetch.clear();
    call_.prefetch(args_->in.k, *s_, kv_, next, call_.p.key_dim, scratch.prefetch);
    call_.prefetch(args_->in.v, *s_, kv_, next, call_.p.value_dim, scratch.prefetch);
  }
  void prefetch_queries(Scratch<T>& scratch, const Chunk& chunk, const Chunk& next, std::int64_t head) const {
    scratch.prefetch.clear();
    call_.prefetch(args_->d_q, *s_, head, chunk, call_.p.key_dim, scratch.prefetch);
    call_.prefetch(args_->in.q, *s_, head, next, call_.p.key_dim, scratch.prefetch);
    call_.prefetch(args_->d_o, *s_, head, next, call_.p.value_dim, scratch.prefetch);
    if (call_.has_denominator()) call_.prefetch(args_->o, *s_, head, next, call_.p.value_dim, scratch.prefetch);
    if (!call_.token_causal) return;
    call_.prefetch(args_->in.k, *s_, kv_, next, call_.p.key_dim, scratch.prefetch);
    call_.prefetch(args_->in.v, *s_, kv_, next, call_.p.value_dim, scratch.prefetch);
  }
  const Tile<T>& denominator_keys(Scratch<T>& scratch, const Chunk& chunk) const {
    if (!separate_denominator()) return scratch.k;
    call_.load(args_->in.k_den, call_.key_features, *s_, kv_, chunk, scratch.k_den);
    return scratch.k_den;
  }
  const Tile<T>& denominator_queries(Scratch<T>& scratch, const Chunk& chunk, std::int64_t head) const {
    if (!separate_denominator()) return scratch.q;
    call_.load(args_->in.q_den, call_.query_features, *s_, head, chunk, scratch.q_den);
    return scratch.q_den;
  }

  void summarize(Scratch<T>& scratch, std::int64_t local) {
    bool started = continues_initial_block(local);
    if (!started && call_.has_denominator()) denominator_.clear_z(i0_ + local);
    call_.for_each_chunk(*s_, local, [&](const Chunk& chunk, const Chunk& next) {
      load_keys(scratch, chunk);
      prefetch_keys(scratch, next);
      outer_product(kernel_, chunk.tokens, scratch.v, scratch.k, S(i0_ + local), started, &scratch.prefetch);
      started = true;
      if (call_.has_denominator()) denominator_.add_keys(i0_ + local, chunk.tokens, denominator_keys(scratch, chunk));
    });
  }

  void mix_summaries(std::int64_t head) {
    block_mixing_ = mixing_for(call_, call_.mixing(args_->in, head), i0_, blocks_, total_, weights_);
    if (kept_.given()) return;
    mix(kernel_, team_, block_mixing_.with(S_, stride_, mixed_, stride_), width_, strips_.data());
    if (call_.has_paper_denominator()) denominator_.mix_z(block_mixing_, strips_.front());
  }

  // Denominators of all tokens and the mixed gradients with respect to t[b, w].
  void reference_denominators(std::int64_t head) {
    const auto& q_den = separate_denominator() ? args_->in.q_den : args_->in.q;
    team_.for_each(blocks_, [&](int worker, std::int64_t b) {
      auto& scratch = scratch_[worker];
      denominator_.clear_slots(b);
      call_.for_each_chunk(*s_, b, [&](const Chunk& chunk, const Chunk&) {
        call_.load(q_den, call_.query_features, *s_, head, chunk, scratch.q_den);
        denominator_.query_slots(b, chunk, scratch.q_den, scratch.inverse);
      });
    });
    denominator_.mix_slots(block_mixing_, strips_.front());
    team_.for_each(blocks_, [&](int worker, std::int64_t b) {
      auto& scratch = scratch_[worker];
      gradient_.clear_slots(b);
      call_.for_each_chunk(*s_, b, [&](const Chunk& chunk, const Chunk&) {
        denominator_.authors(b, chunk, scratch.inverse);
        load_output_gradient(scratch, chunk, head);
        gradient_.put_slots(b, chunk, scratch.d_den);
      });
    });
    gradient_.mix_slots({.rows = blocks_,
                         .sources = blocks_,
                         .steps = Steps::all,
                         .weights = mixing_row(head, 0),
                         .ldw = call_.p.mixing_blocks},
                        strips_.front());
  }

  // With the denominators in scratch.inverse: dU into scratch.d_o, 1 / den into scratch.inverse, d_den.
  void load_output_gradient(Scratch<T>& scratch, const Chunk& chunk, std::int64_t head) const {
    call_.load(args_->d_o, call_.no_features, *s_, head, chunk, scratch.d_o);
    if (!call_.has_denominator()) return;
    call_.load(args_->o, call_.no_features, *s_, head, chunk, scratch.o);
    for (std::int64_t panel = 0; panel < scratch.o.panels(); ++panel)
      kernel_.pair_dots(chunk.tokens, scratch.o.padded_width(panel), scratch.d_o.panel(panel), scratch.o.panel(panel),
                        panel > 0, scratch.d_den);
    for (std::int64_t t = 0; t < chunk.tokens; ++t) {
      scratch.inverse[t] = T(1) / scratch.inverse[t];
      scratch.d_den[t] *= -scratch.inverse[t];
    }
    scale(scratch.d_o, chunk.tokens, scratch.inverse);
  }

  void scale(const Tile<T>& tile, std::int64_t tokens, const T* factor) const {
    for (std::int64_t panel = 0; panel < tile.panels(); ++panel)
      kernel_.scale_rows(tokens, tile.padded_width(panel), factor, tile.panel(panel));
  }

  // The gradient of q_den goes into d_q's tile unless there is a separate tensor for it.
  const Tile<T>& denominator_gradient_rows(Scratch<T>& scratch, std::int64_t tokens, const Tile<T>& shared) const {
    if (!separate_denominator()) return shared;
    clear(scratch.d_den_rows, tokens);
    return scratch.d_den_rows;
  }

  void store_query_gradient(Scratch<T>& scratch, const Chunk& chunk, std::int64_t head) const {
    call_.store_gradient(args_->d_q, args_->in.q, call_.query_features, *s_, head, chunk, scratch.d_q);
    if (separate_denominator())
      call_.store_gradient(args_->d_q_den, args_->in.q_den, call_.query_features, *s_, head, chunk, scratch.d_den_rows);
  }

  // Sums G_i = dU^T Q over a block's chunks. S~_i is read until the last of them, so G_i takes its place at the end.
  class QueryProduct {
   public:
    QueryProduct(Backward& self, Scratch<T>& scratch, std::int64_t local)
        : self_(self), to_(self.mixed(local)),
          sum_(self.call_.layout.block_tokens(*self.s_, local) > kTileTokens ? scratch.square : to_) {}
    void add(Scratch<T>& scratch, std::int64_t tokens) {
      outer_product(self_.kernel_, tokens, scratch.d_o, scratch.q, sum_, started_);
      started_ = true;
    }
    void finish() {
      if (sum_ != to_) std::copy_n(sum_, self_.width_, to_);
    }

   private:
    Backward& self_;
    T* to_;
    T* sum_;
    bool started_ = false;
  };

  void query_gradient(Scratch<T>& scratch, std::int64_t local, std::int64_t head) {
    QueryProduct G(*this, scratch, local);
    if (kept_.given()) transpose(kept_.mixed(local), mixed(local));
    if (call_.has_paper_denominator()) gradient_.clear_mixed(local);
    call_.for_each_chunk(*s_, local, [&](const Chunk& chunk, const Chunk& next) {
      const std::int64_t tokens = chunk.tokens;
      call_.load(args_->in.q, call_.query_features, *s_, head, chunk, scratch.q);
      const Tile<T>* q_den = call_.has_denominator() ? &denominator_queries(scratch, chunk, head) : nullptr;
      if (call_.has_paper_denominator()) denominator_.paper(local, tokens, *q_den, scratch.inverse);
      if (call_.has_authors_denominator()) denominator_.authors(local, chunk, scratch.inverse);
      load_output_gradient(scratch, chunk, head);
      prefetch_queries(scratch, chunk, next, head);
      apply(kernel_, tokens, scratch.d_o, mixed(local), scratch.d_q, false, &scratch.prefetch);
      G.add(scratch, tokens);
      if (call_.has_denominator()) {
        const Tile<T>& rows = denominator_gradient_rows(scratch, tokens, scratch.d_q);
        if (call_.has_paper_denominator()) {
          gradient_.add_to_rows(tokens, scratch.d_den, denominator_.mixed_z(local), rows);
          gradient_.add_queries(gradient_.d_mixed_z(local), tokens, scratch.d_den, *q_den);
        } else {
          gradient_.get_mixed_slots(local, chunk, scratch.d_den);
          gradient_.add_to_rows(tokens, scratch.d_den, denominator_.z(local), rows);
          gradient_.add_queries(gradient_.d_z(local), tokens, scratch.d_den, *q_den);
        }
      }
      store_query_gradient(scratch, chunk, head);
    });
    G.finish();
  }

  void query_gradient_causal(Scratch<T>& scratch, std::int64_t local, std::int64_t head) {
    QueryProduct G(*this, scratch, local);
    const T own_weight = mixing_row(head, i0_ + local)[i0_ + local];
    T d_own_weight = T(0);
    bool has_running = continues_initial_block(local);
    if (has_running) load_transposed(call_.p, initial_.S(i0_), false, scratch.running_S);
    if (call_.has_denominator()) {
      gradient_.clear_mixed(local);
      denominator_.open_block(has_running ? initial_.z(i0_) : nullptr, scratch.running_z);
    }
    std::int64_t left = call_.layout.block_tokens(*s_, local);
    call_.for_each_chunk(*s_, local, [&](const Chunk& chunk, const Chunk& next) {
      const std::int64_t tokens = chunk.tokens;
      left -= tokens;
      call_.load(args_->in.q, call_.query_features, *s_, head, chunk, scratch.q);
      load_keys(scratch, chunk);
      const Tile<T>* q_den = nullptr;
      const Tile<T>* k_den = nullptr;
      if (call_.has_denominator()) {
        q_den = &denominator_queries(scratch, chunk, head);
        k_den = &denominator_keys(scratch, chunk);
        // The running sum is walked twice: once for the denominators, once more below for their gradient.
        std::copy_n(scratch.running_z, denominator_.z_width(), scratch.suffix_z);
        denominator_.causal(local, tokens, own_weight, *q_den, *k_den, scratch.suffix_z, scratch.inverse);
      }
      load_output_gradient(scratch, chunk, head);
      remember_denominators(scratch, chunk, head);
      prefetch_queries(scratch, chunk, next, head);
      apply(kernel_, tokens, scratch.d_o, mixed(local), scratch.d_q, false, &scratch.prefetch);
      // What dQ receives from the block itself, before its weight m[i, i].
      if (has_running)
        apply(kernel_, tokens, scratch.d_o, scratch.running_S, scratch.own, false);
      else
        clear(scratch.own, tokens);
      scratch.causal.scores(kernel_, tokens, scratch.d_o, scratch.v, T(1));
      scratch.causal.apply_lower(kernel_, tokens, scratch.k, scratch.own);
      for (std::int64_t panel = 0; panel < scratch.q.panels(); ++panel) {
        const std::int64_t width = scratch.q.padded_width(panel);
        T dots[kTileTokens];
        kernel_.pair_dots(tokens, width, scratch.q.panel(panel), scratch.own.panel(panel), false, dots);
        for (std::int64_t t = 0; t < tokens; ++t) {
          d_own_weight += dots[t];
          kernel_.add_scaled(width, own_weight, scratch.own.panel(panel) + t * kTileStride<T>,
                             scratch.d_q.panel(panel) + t * kTileStride<T>);
        }
      }
      G.add(scratch, tokens);
      if (call_.has_denominator()) {
        const Tile<T>& rows = denominator_gradient_rows(scratch, tokens, scratch.d_q);
        gradient_.add_to_rows(tokens, scratch.d_den, denominator_.mixed_z(local), rows);
        gradient_.add_queries(gradient_.d_mixed_z(local), tokens, scratch.d_den, *q_den);
        d_own_weight +=
            gradient_.causal_queries(tokens, own_weight, scratch.d_den, *q_den, *k_den, scratch.running_z, rows);
      }
      store_query_gradient(scratch, chunk, head);
      if (left > 0) {
        outer_product(kernel_, tokens, scratch.v, scratch.k, scratch.running_S, has_running);
        has_running = true;
      }
    });
    G.finish();
    own_gradient_[local] = d_own_weight;
  }

  // Kept for the keys' turn.
  void remember_denominators(const Scratch<T>& scratch, const Chunk& chunk, std::int64_t head) {
    if (!call_.has_denominator()) return;
    const std::int64_t at = denominator_place(chunk, head);
    std::copy_n(scratch.inverse, chunk.tokens, inverse_ + at);
    std::copy_n(scratch.d_den, chunk.tokens, d_den_ + at);
  }
  std::int64_t denominator_place(const Chunk& chunk, std::int64_t head) const {
    return (head - first_head()) * call_.p.partition.tokens() + chunk.runs[0].token - s_->first_token;
  }

  void mixing_gradient(std::int64_t head, std::int64_t part) {
    constexpr std::int64_t kRows = BlockProducts<T>::kRows;
    team_.for_each((blocks_ + kRows - 1) / kRows, [&](int worker, std::int64_t group) {
      auto& products = scratch_[worker].products;
      const std::int64_t first = group * kRows;
      const std::int64_t rows = std::min(kRows, blocks_ - first);
      const std::int64_t columns = call_.mixing_limit(i0_ + first + rows - 1, total_);
      products.start(rows, columns);
      products.add(kernel_, width_, mixed(first), stride_, S_, stride_);
      if (call_.has_paper_denominator())
        products.add(kernel_, denominator_.z_width(), gradient_.d_mixed_z(first), denominator_.z_width(),
                     denominator_.z(0), denominator_.z_width());
      if (call_.has_authors_denominator())
        products.add(kernel_, denominator_.slot_width(), gradient_.d_slots(first), denominator_.slot_width(),
                     denominator_.slots(0), denominator_.slot_width());
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t row = i0_ + first + i;
        T* to = d_mixing_->row(part, head, row);
        for (std::int64_t b = 0; b < call_.mixing_limit(row, total_); ++b) to[b] += products.get(i, b);
        if (call_.token_causal) to[row] += own_gradient_[first + i];
      }
    });
  }

  // dS_b += sum_i m[i, b] G_i; replaces S when there is but one query head, which no longer needs it.
  void unmix_gradients(std::int64_t head) {
    // Blocks before the call's own are seen by all its queries; of the others, a block by those from it on or behind
    // it.
    const bool causal = call_.p.options.masking != Masking::none;
    const std::int64_t seen_by_all = causal ? i0_ : total_;
    const std::int64_t skipped = call_.token_causal ? 1 : 0;
    const auto unmix = [&](std::int64_t first, std::int64_t rows, std::int64_t first_source, Steps steps) {
      const Mixing<T> mixing{.rows = rows,
                             .sources = blocks_ - first_source,
                             .steps = steps,
                             .weights = mixing_row(head, i0_ + first_source) + first,
                             .ldw = call_.p.mixing_blocks,
                             .in = mixed(first_source),
                             .ld_in = stride_,
                             .out = d_S(first),
                             .ld_out = stride_,
                             .accumulate = head != first_head()};
      mix(kernel_, team_, mixing, width_, strips_.data());
      if (call_.has_paper_denominator()) gradient_.mix_z(mixing, first, first_source, strips_.front());
    };
    unmix(0, seen_by_all, 0, Steps::all);
    if (causal) unmix(i0_, total_ - i0_, skipped, Steps::shrinking);
  }

  void add_final_state_gradient() {
    for (std::int64_t b = 0; b < total_; ++b) {
      if (d_final_.has_S()) load_transposed(call_.p, d_final_.S(b), true, d_S(b));
      if (d_final_.has_z() && call_.has_denominator())
        for (std::int64_t r = 0; r < call_.p.key_dim; ++r) gradient_.d_z(b)[r] += d_final_.z(b)[r];
    }
  }

  void transpose_gradient(Scratch<T>& scratch, std::int64_t block) const {
    const auto& p = call_.p;
    kernel_.transpose(p.value_dim, p.key_dim, d_S(block), padded<T>(p.key_dim), scratch.transposed,
                      padded<T>(p.value_dim));
  }

  // dK = V dS^T, dV = K dS, and what the denominator gives every key of the block.
  void key_products(Scratch<T>& scratch, std::int64_t block, std::int64_t tokens) const {
    apply(kernel_, tokens, scratch.v, d_S(block), scratch.d_k, false, &scratch.prefetch);
    apply(kernel_, tokens, scratch.k, scratch.transposed, scratch.d_v, false);
    if (!call_.has_denominator()) return;
    std::fill_n(scratch.inverse, tokens, T(1));
    gradient_.add_to_rows(tokens, scratch.inverse, gradient_.d_z(block),
                          denominator_gradient_rows(scratch, tokens, scratch.d_k));
  }

  void store_key_gradients(Scratch<T>& scratch, const Chunk& chunk) const {
    call_.store_gradient(args_->d_k, args_->in.k, call_.key_features, *s_, kv_, chunk, scratch.d_k);
    call_.store(args_->d_v, *s_, kv_, chunk, scratch.d_v, nullptr);
    if (separate_denominator())
      call_.store_gradient(args_->d_k_den, args_->in.k_den, call_.key_features, *s_, kv_, chunk, scratch.d_den_rows);
  }

  void key_gradient(Scratch<T>& scratch, std::int64_t local) {
    transpose_gradient(scratch, i0_ + local);
    call_.for_each_chunk(*s_, local, [&](const Chunk& chunk, const Chunk& next) {
      load_keys(scratch, chunk);
      prefetch_keys(scratch, next);
      call_.prefetch(args_->d_k, *s_, kv_, chunk, call_.p.key_dim, scratch.prefetch);
      call_.prefetch(args_->d_v, *s_, kv_, chunk, call_.p.value_dim, scratch.prefetch);
      key_products(scratch, i0_ + local, chunk.tokens);
      store_key_gradients(scratch, chunk);
    });
  }

  // Chunks in descending order: dS_b grows by m[i, i] dU^T Q of the chunks behind.
  void key_gradient_causal(Scratch<T>& scratch, std::int64_t local) {
    const std::int64_t block = i0_ + local;
    const std::int64_t z_width = padded<T>(call_.p.key_dim);
    std::fill_n(scratch.suffix_z, call_.group * z_width, T(0));
    std::int64_t left = call_.layout.block_tokens(*s_, local);
    call_.for_each_chunk_reversed(*s_, local, [&](const Chunk& chunk) {
      const std::int64_t tokens = chunk.tokens;
      left -= tokens;
      const bool more = left > 0 || (continues_initial_block(local) && d_initial_.has_S());
      transpose_gradient(scratch, block);
      load_keys(scratch, chunk);
      scratch.prefetch.clear();
      call_.prefetch(args_->d_k, *s_, kv_, chunk, call_.p.key_dim, scratch.prefetch);
      call_.prefetch(args_->d_v, *s_, kv_, chunk, call_.p.value_dim, scratch.prefetch);
      key_products(scratch, block, tokens);
      for (std::int64_t h = first_head(); h < first_head() + call_.group; ++h) {
        const T own_weight = mixing_row(h, block)[block];
        call_.load(args_->in.q, call_.query_features, *s_, h, chunk, scratch.q);
        call_.load(args_->d_o, call_.no_features, *s_, h, chunk, scratch.d_o);
        if (call_.has_denominator()) {
          scale(scratch.d_o, tokens, inverse_ + denominator_place(chunk, h));
          gradient_.causal_keys(tokens, own_weight, d_den_ + denominator_place(chunk, h),
                                denominator_queries(scratch, chunk, h), scratch.suffix_z + (h - first_head()) * z_width,
                                separate_denominator() ? scratch.d_den_rows : scratch.d_k);
        }
        scratch.causal.scores(kernel_, tokens, scratch.q, scratch.k, own_weight);
        scratch.causal.apply_lower_transposed(kernel_, tokens, scratch.d_o, scratch.d_v);
        scratch.causal.scores(kernel_, tokens, scratch.d_o, scratch.v, own_weight);
        scratch.causal.apply_lower_transposed(kernel_, tokens, scratch.q, scratch.d_k);
        if (more) {
          std::fill_n(scratch.inverse, tokens, own_weight);
          scale(scratch.d_o, tokens, scratch.inverse);
          outer_product(kernel_, tokens, scratch.d_o, scratch.q, d_S(block), true);
        }
      }
      store_key_gradients(scratch, chunk);
    });
    if (continues_initial_block(local) && call_.has_denominator())
      for (std::int64_t h = 0; h < call_.group; ++h)
        kernel_.add_scaled(z_width, T(1), scratch.suffix_z + h * z_width, gradient_.d_z(block));
  }

  void store_initial_gradient() {
    for (std::int64_t b = 0; b < d_initial_.blocks(); ++b) {
      store_transposed(call_.p, d_S(b), d_initial_.S(b));
      if (d_initial_.has_z() && call_.has_denominator())
        std::copy_n(gradient_.d_z(b), call_.p.key_dim, d_initial_.z(b));
    }
  }

  const Call<T>& call_;
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
  std::deque<Scratch<T>> scratch_;
  std::vector<T*> strips_;

  const Sequence* s_ = nullptr;
  std::int64_t kv_ = 0;
  std::int64_t i0_ = 0;
  std::int64_t blocks_ = 0;
  std::int64_t total_ = 0;
  Mixing<T> block_mixing_{};
};

}  // namespace

template <typename T>
std::size_t backward_workspace(const Problem& problem, int threads) {
  const Call<T> call(problem);
  const Schedule schedule(call.units(), threads);
  Workspace measure;
  const MixingGradient<T> d_mixing(measure, call);
  for (int i = 0; i < schedule.side_by_side; ++i)
    Backward<T>(call, nullptr, nullptr, measure, Team(serial(), schedule.per_unit));
  return measure.used();
}

template <typename T>
void backward(const Problem& problem, const BackwardArgs& args, const Parallel& parallel, int threads) {
  const Call<T> call(problem);
  const Schedule schedule(call.units(), threads);
  Workspace workspace(args.run.workspace);
  MixingGradient<T> d_mixing(workspace, call);
  std::deque<Backward<T>> backwards;
  for (int i = 0; i < schedule.side_by_side; ++i)
    backwards.emplace_back(call, &args, &d_mixing, workspace,
                           schedule.per_unit > 1 ? Team(parallel, schedule.per_unit) : Team());
  Team(parallel, schedule.side_by_side).for_each(d_mixing.parts(), [&](int worker, std::int64_t part) {
    d_mixing.clear(part);
    for (std::int64_t unit = d_mixing.first_unit(part); unit < d_mixing.first_unit(part + 1); ++unit)
      backwards[static_cast<std::size_t>(worker)].run(unit, part);
  });
  if (args.d_mixing != nullptr) d_mixing.finish(static_cast<T*>(args.d_mixing));
}

template std::size_t backward_workspace<float>(const Problem&, int);
template std::size_t backward_workspace<double>(const Problem&, int);
template void backward<float>(const Problem&, const BackwardArgs&, const Parallel&, int);
template void backward<double>(const Problem&, const BackwardArgs&, const Parallel&, int);

}  // namespace mhla::cpu::summary
