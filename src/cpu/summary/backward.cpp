// Backward pass in the summary form, from the forward pass's output and, where they were kept, its summaries (else 1.
// and the mixing of 2. are done again). Summaries are held transposed, [Dv, Dk], because dQ = dU S~^T and dK = V dS^T
// read them that way. Per unit (sequence, kv head):
//   1. every block: S_b^T = V_b^T phi(K_b)
//   2. per query head: S~_i^T, then every block: dU = dO / den, dQ_i = dU S~_i^T, G_i^T = dU^T phi(Q_i) in its place;
//      dm[i, b] += <G_i, S_b>;  dS_b^T += sum_i m[i, b] G_i^T
//   3. every block: dK_b = V_b dS_b^T, dV_b = phi(K_b) dS_b
// A token-causal block adds the terms inside its chunks, which use m[i, i] and are recomputed where they are needed.
#include "cpu/summary/backward.hpp"

#include "cpu/algorithms.hpp"

namespace mhla::cpu::summary {

template <typename T>
void Backward<T>::run(std::int64_t unit, std::int64_t part) {
  s_ = call_.sequence(unit);
  kv_ = call_.kv_head(unit);
  i0_ = call_.layout.first_block();
  blocks_ = s_.blocks;
  total_ = std::max(i0_ + blocks_, initial_.blocks());
  initial_.open(s_, kv_);
  d_initial_.open(s_, kv_);
  d_final_.open(s_, kv_);
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
    if (call_.has_authors_denominator()) authors_denominators(h);
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

template <typename T>
void Backward<T>::load_initial_state() {
  for (std::int64_t b = 0; b < initial_.blocks(); ++b) {
    load_transposed(call_.p, initial_.S(b), false, S(b));
    if (call_.has_denominator()) denominator_.set_z(b, initial_.z(b));
  }
}

template <typename T>
void Backward<T>::load_kept(std::int64_t unit) {
  kept_.open(unit);
  denominator_.place_sums(kept_.z(), kept_.mixed_z());
  team_.for_each(blocks_, [&](int, std::int64_t b) { transpose(kept_.S(b), S(b)); });
}

template <typename T>
void Backward<T>::summarize(BackwardScratch<T>& scratch, std::int64_t local) {
  bool started = continues_initial_block(local);
  if (!started && call_.has_denominator()) denominator_.clear_z(i0_ + local);
  call_.for_each_chunk(s_, local, [&](const Chunk& chunk, const Chunk& next) {
    load_keys(scratch, chunk);
    prefetch_keys(scratch, next);
    outer_product(kernel_, chunk.tokens, scratch.v, scratch.k, S(i0_ + local), started, &scratch.prefetch);
    started = true;
    if (call_.has_denominator()) denominator_.add_keys(i0_ + local, chunk.tokens, denominator_keys(scratch, chunk));
  });
}

template <typename T>
void Backward<T>::mix_summaries(std::int64_t head) {
  block_mixing_ = mixing_for(call_, call_.mixing(args_->in, s_, head), i0_, blocks_, total_, weights_);
  if (kept_.given()) return;
  mix(kernel_, team_, block_mixing_.with(S_, stride_, mixed_, stride_), width_, strips_.data());
  if (call_.has_paper_denominator()) denominator_.mix_z(block_mixing_, strips_.front());
}

template <typename T>
void Backward<T>::mixing_gradient(std::int64_t head, std::int64_t part) {
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
      T* to = d_mixing_->row(part, s_, head, row);
      for (std::int64_t b = 0; b < call_.mixing_limit(row, total_); ++b) to[b] += products.get(i, b);
      if (call_.token_causal) to[row] += own_gradient_[first + i];
    }
  });
}

// dS_b += sum_i m[i, b] G_i; replaces S when there is but one query head, which no longer needs it.
template <typename T>
void Backward<T>::unmix_gradients(std::int64_t head) {
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

template <typename T>
void Backward<T>::add_final_state_gradient() {
  for (std::int64_t b = 0; b < total_; ++b) {
    if (d_final_.has_S()) load_transposed(call_.p, d_final_.S(b), true, d_S(b));
    if (d_final_.has_z() && call_.has_denominator())
      for (std::int64_t r = 0; r < call_.p.key_dim; ++r) gradient_.d_z(b)[r] += d_final_.z(b)[r];
  }
}

template <typename T>
void Backward<T>::store_initial_gradient() {
  for (std::int64_t b = 0; b < d_initial_.blocks(); ++b) {
    store_transposed(call_.p, d_S(b), d_initial_.S(b));
    if (d_initial_.has_z() && call_.has_denominator()) std::copy_n(gradient_.d_z(b), call_.p.key_dim, d_initial_.z(b));
  }
}

template <typename T>
std::size_t backward_workspace(const Problem& problem, int threads) {
  const CpuCall<T> call(problem);
  const Schedule schedule(call.units(), threads);
  Workspace measure;
  const MixingGradient<T> d_mixing(measure, call, nullptr);
  for (int i = 0; i < schedule.side_by_side; ++i)
    Backward<T>(call, nullptr, nullptr, measure, Team(serial(), schedule.per_unit));
  return measure.used();
}

template <typename T>
void backward(const Problem& problem, const BackwardArgs& args, const Parallel& parallel, int threads) {
  const CpuCall<T> call(problem);
  const Schedule schedule(call.units(), threads);
  Workspace workspace(args.run.workspace);
  MixingGradient<T> d_mixing(workspace, call, static_cast<T*>(args.d_mixing));
  std::deque<Backward<T>> backwards;
  for (int i = 0; i < schedule.side_by_side; ++i)
    backwards.emplace_back(call, &args, &d_mixing, workspace,
                           schedule.per_unit > 1 ? Team(parallel, schedule.per_unit) : Team());
  Team(parallel, schedule.side_by_side).for_each(d_mixing.parts(), [&](int worker, std::int64_t part) {
    d_mixing.clear(part);
    for (std::int64_t unit = d_mixing.first_unit(part); unit < d_mixing.first_unit(part + 1); ++unit)
      backwards[static_cast<std::size_t>(worker)].run(unit, part);
  });
  d_mixing.finish();
}

template std::size_t backward_workspace<float>(const Problem&, int);
template std::size_t backward_workspace<double>(const Problem&, int);
template void backward<float>(const Problem&, const BackwardArgs&, const Parallel&, int);
template void backward<double>(const Problem&, const BackwardArgs&, const Parallel&, int);

}  // namespace mhla::cpu::summary
