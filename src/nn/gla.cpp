// GLA by joining neighbours: tokens to chunks, whose scores are matrix products, then chunks through their states.
//
// What two neighbours need of each other is decayed to the border between them. So decays are only ever multiplied,
// with factors from 0 to 1: nothing overflows, and nothing is subtracted or divided.
#include "nn/gla.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "mhla/types.hpp"

namespace mhla::nn {
namespace {

// Neighbours along an axis, as two views.
std::array<at::Tensor, 2> halves(const at::Tensor& x, std::int64_t axis) {
  auto parts = x.unflatten(axis, {-1, 2}).unbind(axis + 1);
  return {std::move(parts[0]), std::move(parts[1])};
}

// The chunks of all sequences, each in segments of the same number of tokens: [chunks, segments, tokens, ..].
struct Segments {
  at::Tensor q;       // decayed since the segment began
  at::Tensor k;       // decayed until the segment ends
  at::Tensor decay;   // of the whole segment, [chunks, segments, 1, Dk]
  at::Tensor scores;  // of the segment's keys for its queries, [chunks, segments, tokens, tokens]
};

Segments joined(const Segments& parts) {
  const auto [q_1, q_2] = halves(parts.q, 1);
  const auto [k_1, k_2] = halves(parts.k, 1);
  const auto [decay_1, decay_2] = halves(parts.decay, 1);
  const auto [scores_1, scores_2] = halves(parts.scores, 1);
  const at::Tensor across = at::matmul(q_2, k_1.transpose(2, 3));
  const at::Tensor upper = at::constant_pad_nd(scores_1, {0, across.size(3)}), lower = at::cat({across, scores_2}, 3);
  return {at::cat({q_1, q_2 * decay_1}, 2), at::cat({k_1 * decay_2, k_2}, 2), decay_1 * decay_2,
          at::cat({upper, lower}, 2)};
}

// The states before each of T chunks, where S_{c+1} = decay_c S_c + update_c. decay: [B, H, T, Dk, 1]; update:
// [B, H, T, Dk, Dv]; first: [B, H, Dk, Dv]. Linear work in log2(T) steps.
at::Tensor states_before(const at::Tensor& decay, const at::Tensor& update, const at::Tensor& first) {
  constexpr std::int64_t kChunks = 2;
  const std::int64_t count = update.size(kChunks);
  if (count == 1) return first.unsqueeze(kChunks);
  if (count % 2 == 1) {
    const auto even = [](const at::Tensor& x) { return at::constant_pad_nd(x, {0, 0, 0, 0, 0, 1}); };
    return states_before(even(decay), even(update), first).narrow(kChunks, 0, count);
  }
  const auto [decay_1, decay_2] = halves(decay, kChunks);
  const auto [update_1, update_2] = halves(update, kChunks);
  const at::Tensor before = states_before(decay_1 * decay_2, at::addcmul(update_2, decay_2, update_1), first);
  return at::stack({before, at::addcmul(update_1, decay_1, before)}, kChunks + 1).flatten(kChunks, kChunks + 1);
}

void check_shape(const char* name, const at::Tensor& tensor, at::IntArrayRef right) {
  if (tensor.sizes() != right)
    throw Error(std::string(name) + " has shape " + c10::str(tensor.sizes()) + "; it must be " + c10::str(right));
}

void check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& log_decay,
           const GlaOptions& options) {
  if (q.dim() != 4) throw Error("q has shape " + c10::str(q.sizes()) + "; it must be [batch, tokens, heads, width]");
  check_shape("k", k, q.sizes());
  check_shape("log_decay", log_decay, q.sizes());
  if (v.dim() != 4) throw Error("v has shape " + c10::str(v.sizes()) + "; it must be [batch, tokens, heads, width]");
  check_shape("v", v, {q.size(0), q.size(1), q.size(2), v.size(3)});
  if (options.initial_state.defined())
    check_shape("initial_state", options.initial_state, {q.size(0), q.size(2), q.size(3), v.size(3)});
  if (options.chunk < 1 || !std::has_single_bit(static_cast<std::uint64_t>(options.chunk)))
    throw Error("chunk is " + std::to_string(options.chunk) + "; it must be a power of two");
}

// A chunk no longer than the sequence needs.
std::int64_t chunk_of(std::int64_t tokens, std::int64_t chunk) {
  return std::min(chunk, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(tokens))));
}

}  // namespace

GlaResult gla(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& log_decay,
              const GlaOptions& options) {
  check(q, k, v, log_decay, options);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const std::int64_t batch = q.size(0), tokens = q.size(1), heads = q.size(2), key_dim = q.size(3),
                     value_dim = v.size(3);
  const auto type = v.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor first = options.initial_state.defined()
                               ? options.initial_state.to(type)
                               : at::zeros({batch, heads, key_dim, value_dim}, v.options().dtype(type));
  if (tokens == 0) return {at::empty_like(v), first};
  const std::int64_t chunk = chunk_of(tokens, options.chunk), count = (tokens + chunk - 1) / chunk;

  // Tokens that fill up the last chunk keep the state: their keys and the logarithms of their decays are zero.
  const auto chunked = [&](const at::Tensor& x) {
    const at::Tensor by_head = x.to(type).transpose(1, 2);
    const at::Tensor whole =
        count * chunk == tokens ? by_head : at::constant_pad_nd(by_head, {0, 0, 0, count * chunk - tokens});
    return whole.reshape({batch * heads * count, chunk, 1, x.size(3)});
  };
  const double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(key_dim)));
  const at::Tensor queries = chunked(q) * scale, keys = chunked(k), decays = chunked(log_decay).exp();
  Segments chunks{queries * decays, keys, decays, (queries * keys).sum(3, /*keepdim=*/true)};
  for (std::int64_t length = 1; length < chunk; length *= 2) chunks = joined(chunks);

  const at::Tensor values = chunked(v).squeeze(2);  // [chunks, tokens, Dv]
  const at::Tensor decay = chunks.decay.view({batch, heads, count, key_dim, 1});
  const at::Tensor update = at::bmm(chunks.k.squeeze(1).transpose(1, 2), values)  //
                                .view({batch, heads, count, key_dim, value_dim});
  const at::Tensor before = states_before(decay, update, first);
  const at::Tensor o = at::baddbmm(at::bmm(chunks.scores.squeeze(1), values), chunks.q.squeeze(1),
                                   before.reshape({batch * heads * count, key_dim, value_dim}));
  const auto last = [&](const at::Tensor& x) { return x.select(2, count - 1); };
  return {o.view({batch, heads, count * chunk, value_dim})
              .narrow(2, 0, tokens)
              .transpose(1, 2)
              .contiguous()
              .to(v.scalar_type()),
          at::addcmul(last(update), last(decay), last(before))};
}

}  // namespace mhla::nn
