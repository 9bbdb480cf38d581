// Decoding: the next tokens of a token-causal layer, on the CPU or on CUDA, with all memory given by the caller.
//
//   o_t = scale phi(q_t)^T (P_i + m[i, i] sum_{s <= t in block i} phi(k_s) v_s^T) / (denominator + eps)
//
// P_i = sum_{b < i} m[i, b] S_b stays as it is while block i is open, so a token costs P_i once and the rows of the
// open block. How many tokens were seen is in the memory itself, one number for each batch row: the same call, captured
// into a CUDA graph, goes on from wherever the rows are. mhla::State is the same for the CPU with memory of its own.
#pragma once

#include <cstdint>

#include "mhla/attention.hpp"
#include "mhla/state.hpp"

namespace mhla {

struct DecodeConfig : StateConfig {
  Device device = Device::cpu;
  DType summary_dtype = DType::f32;  // of S and P: f32 or bf16; f64 beside f64

  // No batch row goes beyond this many tokens. 0: as many as the policy has room for, which is what the matrix was
  // trained for (error) or any number (clamp, running_mean); interpolate needs a number.
  std::int64_t max_tokens = 0;

  std::int64_t slots() const;        // summaries of blocks that are kept: block b in slot b % slots()
  bool folds() const;                // older blocks are known by their sum
  std::int64_t mixed_heads() const;  // P's heads: query heads with a matrix each, else kv heads
};

// Throws an Error unless the config makes sense.
void validate(const DecodeConfig& config);

// Contiguous; T is the accumulation type, A the summary_dtype, E the element type. A state that has seen nothing is all
// zeros, then decode_open().
struct DecodeMemory {
  void* S = nullptr;                 // A [batch, kv_heads, slots, Dk, Dv]
  void* z = nullptr;                 // T [batch, kv_heads, slots, Dk]; null without a normaliser
  void* P = nullptr;                 // A [batch, mixed_heads, Dk, Dv], of the open block
  void* P_z = nullptr;               // T [batch, mixed_heads, Dk]; null without a normaliser
  void* diagonal = nullptr;          // T [batch, mixed_heads]: m[i, i] of the open block
  void* folded_S = nullptr;          // T [batch, kv_heads, Dk, Dv]; null where nothing is folded
  void* folded_z = nullptr;          // T [batch, kv_heads, Dk]; null where nothing is folded or without a normaliser
  void* k = nullptr;                 // E [batch, kv_heads, block_size, Dk]: the open block's rows of k
  void* v = nullptr;                 // E [batch, kv_heads, block_size, Dv]
  std::int64_t* tokens = nullptr;    // [batch]: tokens seen
  std::int32_t* arrivals = nullptr;  // [batch, kv_heads + 1]: zero between calls; CUDA only
};

struct DecodeArgs {
  ConstTensor q, k, v;           // [batch, tokens, heads, dim]
  Tensor o;                      // likewise
  const void* mixing = nullptr;  // T [M, M] or [H, M, M]
  DecodeMemory memory;
  Execution run;  // no workspace
};

// Consumes `tokens` tokens of every batch row and writes their outputs. On CUDA this enqueues work on run.stream and
// returns; the number of launches depends on `tokens` and block_size only.
void decode_step(const DecodeConfig& config, std::int64_t tokens, const DecodeArgs& args);

// Mixes P, P_z and the diagonal of the open block from S, z, the folded sums and `tokens`: after whoever wrote these.
// q, k, v and o are not used.
void decode_open(const DecodeConfig& config, const DecodeArgs& args);

}  // namespace mhla
