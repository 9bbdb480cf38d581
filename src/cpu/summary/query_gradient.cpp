// Step 2 of the backward pass: per query head and block dQ_i, and G_i in the place of S~_i.
#include "cpu/summary/backward.hpp"

namespace mhla::cpu::summary {

// Sums G_i = dU^T Q over a block's chunks. S~_i is read until the last of them, so G_i takes its place at the end.
template <typename T>
class Backward<T>::QueryProduct {
 public:
  QueryProduct(Backward& self, BackwardScratch<T>& scratch, std::int64_t local)
      : self_(self), to_(self.mixed(local)),
        sum_(self.call_.layout.block_tokens(self.s_, local) > kTileTokens ? scratch.square : to_) {}
  void add(BackwardScratch<T>& scratch, std::int64_t tokens) {
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

// Denominators of all tokens and the mixed gradients with respect to t[b, w].
template <typename T>
void Backward<T>::authors_denominators(std::int64_t head) {
  const auto& q_den = separate_denominator() ? args_->in.q_den : args_->in.q;
  team_.for_each(blocks_, [&](int worker, std::int64_t b) {
    auto& scratch = scratch_[worker];
    denominator_.clear_slots(b);
    call_.for_each_chunk(s_, b, [&](const Chunk& chunk, const Chunk&) {
      call_.load(q_den, call_.query_features, s_, head, chunk, scratch.q_den);
      denominator_.query_slots(b, chunk, scratch.q_den, scratch.inverse);
    });
  });
  denominator_.mix_slots(block_mixing_, strips_.front());
  team_.for_each(blocks_, [&](int worker, std::int64_t b) {
    auto& scratch = scratch_[worker];
    gradient_.clear_slots(b);
    call_.for_each_chunk(s_, b, [&](const Chunk& chunk, const Chunk&) {
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
template <typename T>
void Backward<T>::load_output_gradient(BackwardScratch<T>& scratch, const Chunk& chunk, std::int64_t head) const {
  call_.load(args_->d_o, call_.no_features, s_, head, chunk, scratch.d_o);
  if (!call_.has_denominator()) return;
  call_.load(args_->o, call_.no_features, s_, head, chunk, scratch.o);
  for (std::int64_t panel = 0; panel < scratch.o.panels(); ++panel)
    kernel_.pair_dots(chunk.tokens, scratch.o.padded_width(panel), scratch.d_o.panel(panel), scratch.o.panel(panel),
                      panel > 0, scratch.d_den);
  for (std::int64_t t = 0; t < chunk.tokens; ++t) {
    scratch.inverse[t] = T(1) / scratch.inverse[t];
    scratch.d_den[t] *= -scratch.inverse[t];
  }
  scale(scratch.d_o, chunk.tokens, scratch.inverse);
}

template <typename T>
void Backward<T>::store_query_gradient(BackwardScratch<T>& scratch, const Chunk& chunk, std::int64_t head) const {
  call_.store_gradient(args_->d_q, args_->in.q, call_.query_features, s_, head, chunk, scratch.d_q);
  if (separate_denominator())
    call_.store_gradient(args_->d_q_den, args_->in.q_den, call_.query_features, s_, head, chunk, scratch.d_den_rows);
}

template <typename T>
void Backward<T>::query_gradient(BackwardScratch<T>& scratch, std::int64_t local, std::int64_t head) {
  QueryProduct G(*this, scratch, local);
  if (kept_.given()) transpose(kept_.mixed(local), mixed(local));
  if (call_.has_paper_denominator()) gradient_.clear_mixed(local);
  call_.for_each_chunk(s_, local, [&](const Chunk& chunk, const Chunk& next) {
    const std::int64_t tokens = chunk.tokens;
    call_.load(args_->in.q, call_.query_features, s_, head, chunk, scratch.q);
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

template <typename T>
void Backward<T>::query_gradient_causal(BackwardScratch<T>& scratch, std::int64_t local, std::int64_t head) {
  QueryProduct G(*this, scratch, local);
  const T own_weight = mixing_row(head, i0_ + local)[i0_ + local];
  T d_own_weight = T(0);
  bool has_running = continues_initial_block(local);
  if (has_running) load_transposed(call_.p, initial_.S(i0_), false, scratch.running_S);
  if (call_.has_denominator()) {
    gradient_.clear_mixed(local);
    denominator_.open_block(has_running ? initial_.z(i0_) : nullptr, scratch.running_z);
  }
  std::int64_t left = call_.layout.block_tokens(s_, local);
  call_.for_each_chunk(s_, local, [&](const Chunk& chunk, const Chunk& next) {
    const std::int64_t tokens = chunk.tokens;
    left -= tokens;
    call_.load(args_->in.q, call_.query_features, s_, head, chunk, scratch.q);
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
template <typename T>
void Backward<T>::remember_denominators(const BackwardScratch<T>& scratch, const Chunk& chunk, std::int64_t head) {
  if (!call_.has_denominator()) return;
  const std::int64_t at = denominator_place(chunk, head);
  std::copy_n(scratch.inverse, chunk.tokens, inverse_ + at);
  std::copy_n(scratch.d_den, chunk.tokens, d_den_ + at);
}

template void Backward<float>::authors_denominators(std::int64_t);
template void Backward<double>::authors_denominators(std::int64_t);
template void Backward<float>::query_gradient(BackwardScratch<float>&, std::int64_t, std::int64_t);
template void Backward<double>::query_gradient(BackwardScratch<double>&, std::int64_t, std::int64_t);
template void Backward<float>::query_gradient_causal(BackwardScratch<float>&, std::int64_t, std::int64_t);
template void Backward<double>::query_gradient_causal(BackwardScratch<double>&, std::int64_t, std::int64_t);

}  // namespace mhla::cpu::summary
