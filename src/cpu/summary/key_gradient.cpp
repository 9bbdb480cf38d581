// Step 3 of the backward pass: per block dK_b and dV_b.
#include "cpu/summary/backward.hpp"

namespace mhla::cpu::summary {

template <typename T>
void Backward<T>::transpose_gradient(BackwardScratch<T>& scratch, std::int64_t block) const {
  const auto& p = call_.p;
  kernel_.transpose(p.value_dim, p.key_dim, d_S(block), padded<T>(p.key_dim), scratch.transposed,
                    padded<T>(p.value_dim));
}

// dK = V dS^T, dV = K dS, and what the denominator gives every key of the block.
template <typename T>
void Backward<T>::key_products(BackwardScratch<T>& scratch, std::int64_t block, std::int64_t tokens) const {
  apply(kernel_, tokens, scratch.v, d_S(block), scratch.d_k, false, &scratch.prefetch);
  apply(kernel_, tokens, scratch.k, scratch.transposed, scratch.d_v, false);
  if (!call_.has_denominator()) return;
  std::fill_n(scratch.inverse, tokens, T(1));
  gradient_.add_to_rows(tokens, scratch.inverse, gradient_.d_z(block),
                        denominator_gradient_rows(scratch, tokens, scratch.d_k));
}

template <typename T>
void Backward<T>::store_key_gradients(BackwardScratch<T>& scratch, const Chunk& chunk) const {
  call_.store_gradient(args_->d_k, args_->in.k, call_.key_features, s_, kv_, chunk, scratch.d_k);
  call_.store(args_->d_v, s_, kv_, chunk, scratch.d_v, nullptr);
  if (separate_denominator())
    call_.store_gradient(args_->d_k_den, args_->in.k_den, call_.key_features, s_, kv_, chunk, scratch.d_den_rows);
}

template <typename T>
void Backward<T>::key_gradient(BackwardScratch<T>& scratch, std::int64_t local) {
  transpose_gradient(scratch, i0_ + local);
  call_.for_each_chunk(s_, local, [&](const Chunk& chunk, const Chunk& next) {
    load_keys(scratch, chunk);
    prefetch_keys(scratch, next);
    call_.prefetch(args_->d_k, s_, kv_, chunk, call_.p.key_dim, scratch.prefetch);
    call_.prefetch(args_->d_v, s_, kv_, chunk, call_.p.value_dim, scratch.prefetch);
    key_products(scratch, i0_ + local, chunk.tokens);
    store_key_gradients(scratch, chunk);
  });
}

// Chunks in descending order: dS_b grows by m[i, i] dU^T Q of the chunks behind.
template <typename T>
void Backward<T>::key_gradient_causal(BackwardScratch<T>& scratch, std::int64_t local) {
  const std::int64_t block = i0_ + local;
  const std::int64_t z_width = padded<T>(call_.p.key_dim);
  std::fill_n(scratch.suffix_z, call_.group * z_width, T(0));
  std::int64_t left = call_.layout.block_tokens(s_, local);
  call_.for_each_chunk_reversed(s_, local, [&](const Chunk& chunk) {
    const std::int64_t tokens = chunk.tokens;
    left -= tokens;
    const bool more = left > 0 || (continues_initial_block(local) && d_initial_.has_S());
    transpose_gradient(scratch, block);
    load_keys(scratch, chunk);
    scratch.prefetch.clear();
    call_.prefetch(args_->d_k, s_, kv_, chunk, call_.p.key_dim, scratch.prefetch);
    call_.prefetch(args_->d_v, s_, kv_, chunk, call_.p.value_dim, scratch.prefetch);
    key_products(scratch, block, tokens);
    for (std::int64_t h = first_head(); h < first_head() + call_.group; ++h) {
      const T own_weight = mixing_row(h, block)[block];
      call_.load(args_->in.q, call_.query_features, s_, h, chunk, scratch.q);
      call_.load(args_->d_o, call_.no_features, s_, h, chunk, scratch.d_o);
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

template void Backward<float>::key_gradient(BackwardScratch<float>&, std::int64_t);
template void Backward<double>::key_gradient(BackwardScratch<double>&, std::int64_t);
template void Backward<float>::key_gradient_causal(BackwardScratch<float>&, std::int64_t);
template void Backward<double>::key_gradient_causal(BackwardScratch<double>&, std::int64_t);

}  // namespace mhla::cpu::summary
