// Forward pass in the summary form. Per unit (sequence, kv head):
//   1. every block: S_b = phi(K_b)^T V_b, z_b = sum phi(k)
//   2. per query head: S~_i = sum_b m[i, b] S_b (b < i when token-causal), z~_i likewise
//   3. every block: O_i = phi(Q_i) S~_i / denominator
// A token-causal block is walked in chunks: m[i, i] tril(Q K^T) V inside the chunk, and S~_i += m[i, i] K^T V after it.
// With one query head per kv head, S~ takes the place of S, unless both are kept for the backward pass.
#include <algorithm>
#include <deque>
#include <vector>

#include "cpu/algorithms.hpp"
#include "cpu/causal_chunk.hpp"
#include "cpu/cpu_call.hpp"
#include "cpu/stages.hpp"
#include "cpu/summary/denominator.hpp"
#include "cpu/summary/kept.hpp"
#include "cpu/summary/state_tensors.hpp"

namespace mhla::cpu::summary {
namespace {

// Memory of one worker.
template <typename T>
struct Scratch {
  Tile<T> q, k, v, o, q_den, k_den;
  CausalChunk<T> causal;
  Prefetch prefetch;
  T* denominator;
  T* running_z;
  T* strip;

  Scratch(Workspace& w, const CpuCall<T>& call)
      : q(w, call.p.key_dim), k(w, call.p.key_dim), v(w, call.p.value_dim), o(w, call.p.value_dim),
        q_den(w, call.p.key_dim), k_den(w, call.p.key_dim), causal(w, call.p.key_dim),
        denominator(w.take<T>(kTileTokens)), running_z(w.take<T>(padded<T>(call.p.key_dim))),
        strip(w.take<T>(strip_elements<T>(call.most_blocks()))) {}
};

template <typename T>
class Forward {
 public:
  Forward(const CpuCall<T>& call, const ForwardArgs* args, Workspace& w, Team team)
      : call_(call), args_(args), team_(team), kernel_(call.kernel), M_(call.most_blocks()),
        stride_(summary_stride<T>(call.p.key_dim, call.p.value_dim)), S_(w.take<T>(M_ * stride_)),
        mixed_(call.group == 1 ? from_element(S_, call.layout.first_block() * stride_)
                               : w.take<T>(std::max<std::int64_t>(call.layout.most_blocks(), 1) * stride_)),
        weights_(w.take<T>(M_ * M_)), denominator_(w, call, M_), kept_(call, args == nullptr ? nullptr : args->kept),
        initial_(call, args == nullptr ? ConstSummaries{} : args->in.initial, call.p.initial_blocks()),
        final_(call, args == nullptr ? Summaries{} : args->final_state, call.final_blocks) {
    for (int worker = 0; worker < team.workers(); ++worker) {
      scratch_.emplace_back(w, call);
      strips_.push_back(scratch_.back().strip);
    }
  }

  void run(std::int64_t unit) {
    s_ = call_.sequence(unit);
    kv_ = call_.kv_head(unit);
    i0_ = call_.layout.first_block();
    blocks_ = s_.blocks;
    initial_.open(s_, kv_);
    final_.open(s_, kv_);
    if (kept_.given()) write_to_kept(unit);
    load_initial_state();
    team_.for_each(blocks_, [&](int worker, std::int64_t b) { summarize(scratch_[worker], b); });
    if (final_.has_S()) store_final_state();
    for (std::int64_t h = kv_ * call_.group; h < (kv_ + 1) * call_.group; ++h) {
      if (h == kv_ * call_.group || call_.p.mixing_per_head || call_.token_causal) mix_summaries(h);
      if (call_.has_authors_denominator()) authors_denominators(h);
      team_.for_each(blocks_, [&](int worker, std::int64_t b) {
        if (call_.token_causal)
          read_out_causal(scratch_[worker], b, h);
        else
          read_out(scratch_[worker], b, h);
      });
    }
  }

 private:
  T* S(std::int64_t block) const { return S_ + block * stride_; }
  T* mixed(std::int64_t local) const { return mixed_ + local * stride_; }
  T weight(std::int64_t i, std::int64_t b) const { return mixing_[i * call_.p.mixing_blocks + b]; }
  const ConstTensor& q_den() const { return call_.p.separate_denominator ? args_->in.q_den : args_->in.q; }

  void write_to_kept(std::int64_t unit) {
    kept_.open(unit);
    S_ = kept_.S(0);
    mixed_ = kept_.mixed(0);
    denominator_.place_sums(kept_.z(), kept_.mixed_z());
  }

  void load_initial_state() {
    for (std::int64_t b = 0; b < initial_.blocks(); ++b) {
      load_summary(call_.p, initial_.S(b), T(1), false, S(b));
      if (call_.has_denominator()) denominator_.set_z(b, initial_.z(b));
    }
  }

  bool continues_initial_block(std::int64_t local) const { return local == 0 && call_.layout.filled() > 0; }

  void summarize(Scratch<T>& scratch, std::int64_t local) {
    bool started = continues_initial_block(local);
    if (!started && call_.has_denominator()) denominator_.clear_z(i0_ + local);
    call_.for_each_chunk(s_, local, [&](const Chunk& chunk, const Chunk& next) {
      call_.load(args_->in.k, call_.key_features, s_, kv_, chunk, scratch.k);
      scratch.prefetch.clear();
      call_.prefetch(args_->in.k, s_, kv_, next, call_.p.key_dim, scratch.prefetch);
      call_.prefetch(args_->in.v, s_, kv_, next, call_.p.value_dim, scratch.prefetch);
      if (call_.usable_in_place(args_->in.v, call_.p.value_dim)) {
        const T* rows[kTileTokens];
        call_.rows_in_place(args_->in.v, s_, kv_, chunk, rows);
        outer_product(kernel_, chunk.tokens, scratch.k, rows, call_.p.value_dim, S(i0_ + local), started,
                      &scratch.prefetch);
      } else {
        call_.load(args_->in.v, call_.no_features, s_, kv_, chunk, scratch.v);
        outer_product(kernel_, chunk.tokens, scratch.k, scratch.v, S(i0_ + local), started, &scratch.prefetch);
      }
      started = true;
      if (call_.has_denominator()) denominator_.add_keys(i0_ + local, chunk.tokens, denominator_keys(scratch, chunk));
    });
  }

  const Tile<T>& denominator_keys(Scratch<T>& scratch, const Chunk& chunk) const {
    if (!call_.p.separate_denominator) return scratch.k;
    call_.load(args_->in.k_den, call_.key_features, s_, kv_, chunk, scratch.k_den);
    return scratch.k_den;
  }

  const Tile<T>& denominator_queries(Scratch<T>& scratch, const Chunk& chunk, std::int64_t head) const {
    if (!call_.p.separate_denominator) return scratch.q;
    call_.load(args_->in.q_den, call_.query_features, s_, head, chunk, scratch.q_den);
    return scratch.q_den;
  }

  void store_final_state() {
    for (std::int64_t b = 0; b < final_.blocks(); ++b) {
      const bool reached = b < std::max(i0_ + blocks_, initial_.blocks());
      if (reached)
        store_summary(call_.p, S(b), final_.S(b));
      else
        std::fill_n(final_.S(b), call_.p.key_dim * call_.p.value_dim, T(0));
      if (call_.has_denominator()) denominator_.get_z(b, reached, final_.z(b));
    }
  }

  void mix_summaries(std::int64_t head) {
    mixing_ = call_.mixing(args_->in, s_, head);
    block_mixing_ = mixing_for(call_, mixing_, i0_, blocks_, i0_ + blocks_, weights_);
    mix(kernel_, team_, block_mixing_.with(S_, stride_, mixed_, stride_), stride_ - kLine<T>, strips_.data());
    if (call_.has_paper_denominator()) denominator_.mix_z(block_mixing_, strips_.front());
  }

  void authors_denominators(std::int64_t head) {
    team_.for_each(blocks_, [&](int worker, std::int64_t b) {
      auto& scratch = scratch_[worker];
      denominator_.clear_slots(b);
      call_.for_each_chunk(s_, b, [&](const Chunk& chunk, const Chunk&) {
        call_.load(q_den(), call_.query_features, s_, head, chunk, scratch.q_den);
        denominator_.query_slots(b, chunk, scratch.q_den, scratch.denominator);
      });
    });
    denominator_.mix_slots(block_mixing_, strips_.front());
  }

  void read_out(Scratch<T>& scratch, std::int64_t local, std::int64_t head) {
    call_.for_each_chunk(s_, local, [&](const Chunk& chunk, const Chunk& next) {
      call_.load(args_->in.q, call_.query_features, s_, head, chunk, scratch.q);
      scratch.prefetch.clear();
      call_.prefetch(args_->o, s_, head, chunk, call_.p.value_dim, scratch.prefetch);
      call_.prefetch(args_->in.q, s_, head, next, call_.p.key_dim, scratch.prefetch);
      apply(kernel_, chunk.tokens, scratch.q, mixed(local), scratch.o, false, &scratch.prefetch);
      if (call_.has_paper_denominator())
        denominator_.paper(local, chunk.tokens, denominator_queries(scratch, chunk, head), scratch.denominator);
      if (call_.has_authors_denominator()) denominator_.authors(local, chunk, scratch.denominator);
      store_output(scratch, chunk, head);
    });
  }

  void read_out_causal(Scratch<T>& scratch, std::int64_t local, std::int64_t head) {
    const T own_weight = weight(i0_ + local, i0_ + local);
    if (continues_initial_block(local)) load_summary(call_.p, initial_.S(i0_), own_weight, true, mixed(local));
    if (call_.has_denominator())
      denominator_.open_block(continues_initial_block(local) ? initial_.z(i0_) : nullptr, scratch.running_z);
    std::int64_t left = call_.layout.block_tokens(s_, local);
    call_.for_each_chunk(s_, local, [&](const Chunk& chunk, const Chunk& next) {
      left -= chunk.tokens;
      call_.load(args_->in.q, call_.query_features, s_, head, chunk, scratch.q);
      call_.load(args_->in.k, call_.key_features, s_, kv_, chunk, scratch.k);
      call_.load(args_->in.v, call_.no_features, s_, kv_, chunk, scratch.v);
      scratch.prefetch.clear();
      call_.prefetch(args_->o, s_, head, chunk, call_.p.value_dim, scratch.prefetch);
      call_.prefetch(args_->in.q, s_, head, next, call_.p.key_dim, scratch.prefetch);
      call_.prefetch(args_->in.k, s_, kv_, next, call_.p.key_dim, scratch.prefetch);
      call_.prefetch(args_->in.v, s_, kv_, next, call_.p.value_dim, scratch.prefetch);
      apply(kernel_, chunk.tokens, scratch.q, mixed(local), scratch.o, false, &scratch.prefetch);
      scratch.causal.scores(kernel_, chunk.tokens, scratch.q, scratch.k, own_weight);
      scratch.causal.apply_lower(kernel_, chunk.tokens, scratch.v, scratch.o);
      if (call_.has_denominator())
        denominator_.causal(local, chunk.tokens, own_weight, denominator_queries(scratch, chunk, head),
                            denominator_keys(scratch, chunk), scratch.running_z, scratch.denominator);
      store_output(scratch, chunk, head);
      if (left > 0) {
        std::fill_n(scratch.denominator, chunk.tokens, own_weight);
        for (std::int64_t panel = 0; panel < scratch.k.panels(); ++panel)
          kernel_.scale_rows(chunk.tokens, scratch.k.padded_width(panel), scratch.denominator, scratch.k.panel(panel));
        outer_product(kernel_, chunk.tokens, scratch.k, scratch.v, mixed(local), true);
      }
    });
  }

  void store_output(Scratch<T>& scratch, const Chunk& chunk, std::int64_t head) {
    if (!call_.has_denominator()) return call_.store(args_->o, s_, head, chunk, scratch.o, nullptr);
    for (std::int64_t t = 0; t < chunk.tokens; ++t) scratch.denominator[t] = T(1) / scratch.denominator[t];
    call_.store(args_->o, s_, head, chunk, scratch.o, scratch.denominator);
  }

  const CpuCall<T>& call_;
  const ForwardArgs* args_;
  Team team_;
  const Kernels<T>& kernel_;
  std::int64_t M_;
  std::int64_t stride_;
  T* S_;
  T* mixed_;
  T* weights_;
  Denominator<T> denominator_;
  Kept<T> kept_;
  StateTensors<T, const void*> initial_;
  StateTensors<T, void*> final_;
  std::deque<Scratch<T>> scratch_;
  std::vector<T*> strips_;

  Sequence s_;
  std::int64_t kv_ = 0;
  std::int64_t i0_ = 0;
  std::int64_t blocks_ = 0;
  const T* mixing_ = nullptr;
  Mixing<T> block_mixing_{};
};

}  // namespace

template <typename T>
std::size_t kept_bytes(const Problem& problem) {
  return Kept<T>::bytes(CpuCall<T>(problem));
}

template <typename T>
std::size_t forward_workspace(const Problem& problem, int threads) {
  const CpuCall<T> call(problem);
  const Schedule schedule(call.units(), threads);
  Workspace measure;
  for (int i = 0; i < schedule.side_by_side; ++i) Forward<T>(call, nullptr, measure, Team(serial(), schedule.per_unit));
  return measure.used();
}

template <typename T>
void forward(const Problem& problem, const ForwardArgs& args, const Parallel& parallel, int threads) {
  const CpuCall<T> call(problem);
  const Schedule schedule(call.units(), threads);
  Workspace workspace(args.run.workspace);
  std::deque<Forward<T>> forwards;
  for (int i = 0; i < schedule.side_by_side; ++i)
    forwards.emplace_back(call, &args, workspace, schedule.per_unit > 1 ? Team(parallel, schedule.per_unit) : Team());
  Team(parallel, schedule.side_by_side).for_each(call.units(), [&](int worker, std::int64_t unit) {
    forwards[static_cast<std::size_t>(worker)].run(unit);
  });
}

template std::size_t kept_bytes<float>(const Problem&);
template std::size_t kept_bytes<double>(const Problem&);
template std::size_t forward_workspace<float>(const Problem&, int);
template std::size_t forward_workspace<double>(const Problem&, int);
template void forward<float>(const Problem&, const ForwardArgs&, const Parallel&, int);
template void forward<double>(const Problem&, const ForwardArgs&, const Parallel&, int);

}  // namespace mhla::cpu::summary
