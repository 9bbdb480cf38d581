// One token: o = scale phi(q)^T (P_i + m[i, i] C) / (denominator + eps), C the summary of the open block with the token
// in it.
#include <functional>

#include "core/validate.hpp"
#include "cpu/element.hpp"
#include "cpu/feature_map.hpp"
#include "cpu/kernels.hpp"
#include "cpu/stream/stream.hpp"

namespace mhla::cpu {
namespace {

constexpr std::int64_t kParallelElements = 1 << 15;  // summary elements from which waking threads pays

template <typename Element, typename Pointer>
auto row(const BasicTensor<Pointer>& x, std::int64_t batch, std::int64_t head) {
  using Typed = std::conditional_t<std::is_same_v<Pointer, void*>, Element*, const Element*>;
  return static_cast<Typed>(x.data) + batch * x.batch_stride + head * x.head_stride;
}

template <typename T, typename Element>
void load_features(const Options& options, const Element* from, std::int64_t count, T scale, T* to) {
  const T eps = static_cast<T>(options.feature_eps);
  for (std::int64_t n = 0; n < count; ++n) to[n] = scale * (phi(options.feature_map, static_cast<T>(from[n])) + eps);
}

}  // namespace

template <typename T>
void StreamOf<T>::step(const StreamTensors& x, const Parallel& parallel) {
  validate(config_, 1, x.q, x.k, x.v, x.o);
  check_room(1);
  const std::int64_t queries = config_.heads / config_.kv_heads;
  scratch_.resize(static_cast<std::size_t>(groups() * (queries + 1) * (config_.key_dim + config_.value_dim)));
  if (filled_ == config_.block_size) close_block();
  if (mixed_block_ != open_block()) mix(parallel);

  const std::function<void(std::int64_t)> task = [&](std::int64_t group) {
    with_element_type(config_.dtype, [&](auto tag) { step_group<typename decltype(tag)::type>(group, x); });
  };
  (groups() * queries * summary_size() < kParallelElements ? serial() : parallel).for_each(groups(), task);
  ++filled_;
}

template <typename T>
template <typename Element>
void StreamOf<T>::step_group(std::int64_t group, const StreamTensors& x) {
  const Options& options = config_.options;
  const std::int64_t Dk = config_.key_dim;
  const std::int64_t Dv = config_.value_dim;
  const std::int64_t queries = config_.heads / config_.kv_heads;
  const std::int64_t batch = group / config_.kv_heads;
  const std::int64_t kv_head = group % config_.kv_heads;
  const std::int64_t first_head = kv_head * queries;

  T* k = scratch_.data() + group * (queries + 1) * (Dk + Dv);
  T* v = k + Dk;
  T* q = v + Dv;
  T* o = q + queries * Dk;
  load_features(options, row<Element>(x.k, batch, kv_head), Dk, T(1), k);
  const Element* v_row = row<Element>(x.v, batch, kv_head);
  for (std::int64_t n = 0; n < Dv; ++n) v[n] = static_cast<T>(v_row[n]);
  for (std::int64_t g = 0; g < queries; ++g)
    load_features(options, row<Element>(x.q, batch, first_head + g), Dk, static_cast<T>(options.scale), q + g * Dk);

  const std::int64_t per_head = config_.mixing_per_head ? 1 : 0;
  const std::int64_t mixed = config_.mixing_per_head ? batch * config_.heads + first_head : group;
  const T* weight = diagonal_.data() + per_head * first_head;
  kernels<T>().stream_token({.queries = queries,
                             .key_dim = Dk,
                             .value_dim = Dv,
                             .q = q,
                             .k = k,
                             .v = v,
                             .weight = weight,
                             .weight_stride = per_head,
                             .P = P_.S.data() + mixed * summary_size(),
                             .P_stride = per_head * summary_size(),
                             .C = open_.S.data() + group * summary_size(),
                             .o = o});

  T* z = normalized() ? open_.z.data() + group * Dk : nullptr;
  if (z != nullptr)
    for (std::int64_t d = 0; d < Dk; ++d) z[d] += k[d];
  for (std::int64_t g = 0; g < queries; ++g) {
    T denominator = 1;
    if (z != nullptr) {
      const T* P_z = P_.z.data() + (mixed + per_head * g) * Dk;
      denominator = static_cast<T>(options.eps);
      for (std::int64_t d = 0; d < Dk; ++d) denominator += q[g * Dk + d] * (P_z[d] + weight[per_head * g] * z[d]);
    }
    Element* o_row = row<Element>(x.o, batch, first_head + g);
    for (std::int64_t n = 0; n < Dv; ++n) o_row[n] = static_cast<Element>(o[g * Dv + n] / denominator);
  }
}

template void StreamOf<float>::step(const StreamTensors&, const Parallel&);
template void StreamOf<double>::step(const StreamTensors&, const Parallel&);

}  // namespace mhla::cpu
