// One token of streaming at one key/value head, for cpu/kernels/stream_token.cpp.
#pragma once

#include <cstdint>

namespace mhla::cpu {

// C += k v^T, then o_g = q_g^T (P_g + weight_g C) for each query head g that this key/value head serves.
template <typename T>
struct StreamToken {
  std::int64_t queries;
  std::int64_t key_dim, value_dim;
  const T* q;       // scale phi(q), [queries, Dk]
  const T* k;       // phi(k), [Dk]
  const T* v;       // [Dv]
  const T* weight;  // m[i, i] of query g at weight[g * weight_stride]
  std::int64_t weight_stride;
  const T* P;  // of query g at P + g * P_stride, [Dk, Dv]
  std::int64_t P_stride;
  T* C;  // [Dk, Dv]
  T* o;  // [queries, Dv]
};

}  // namespace mhla::cpu
