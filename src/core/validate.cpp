// What the operator accepts. plan() checks the problem, forward() and backward() the pointers of one execution.
#include "core/validate.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "core/layout.hpp"
#include "core/require.hpp"
#include "core/sizes.hpp"
#include "core/strides.hpp"

namespace mhla {
namespace {

void validate_packed(const Problem& p) {
  if (p.cu_seqlens.empty()) return;
  require(p.batch == 1, "batch is ", p.batch, "; with cu_seqlens (packed sequences) it must be 1");
  require(p.partition.is_line(), "partition is a ", p.partition,
          "; with cu_seqlens (packed sequences) it must be a line");
  require(p.cu_seqlens.size() >= 2 && p.cu_seqlens.front() == 0,
          "cu_seqlens must start with 0 and hold at least 2 entries");
  for (std::size_t s = 1; s < p.cu_seqlens.size(); ++s)
    require(p.cu_seqlens[s] >= p.cu_seqlens[s - 1], "cu_seqlens[", s, "] is ", p.cu_seqlens[s],
            ", less than the entry before it (", p.cu_seqlens[s - 1], ")");
  require(p.cu_seqlens.back() == p.partition.tokens(), "cu_seqlens ends with ", p.cu_seqlens.back(),
          "; it must end with the number of tokens, ", p.partition.tokens());
}

void validate_initial_tokens(const Problem& p) {
  require_size("initial_tokens", p.initial_tokens, 0, kMostTokens);
  if (p.initial_tokens == 0) return;
  require(p.options.masking != Masking::none, "initial_tokens is ", p.initial_tokens,
          "; an initial state needs masking token_causal or block_causal");
  require(p.partition.is_line(), "partition is a ", p.partition, "; with initial_tokens it must be a line");
  if (p.options.masking == Masking::block_causal)
    require(p.initial_tokens % p.partition.block_capacity() == 0, "initial_tokens is ", p.initial_tokens,
            "; with masking block_causal it must be a multiple of the block size, ", p.partition.block_capacity());
}

// Returns the blocks of the matrix that the call uses.
std::int64_t validate_mixing_size(const Problem& p) {
  require_size("mixing_blocks", p.mixing_blocks, 0, kMostBlocks);
  const bool corner_allowed = p.options.masking != Masking::none || !p.cu_seqlens.empty();
  const std::int64_t needed = corner_allowed ? p.final_blocks() : p.partition.blocks();
  if (corner_allowed)
    require(p.mixing_blocks >= needed, "mixing is for ", p.mixing_blocks, " blocks; this call uses ", needed,
            " (pass a larger matrix, or extend it with extend_causal_mixing)");
  else
    require(p.mixing_blocks == needed, "mixing is for ", p.mixing_blocks, " blocks; the partition (", p.partition,
            ") has ", needed);
  return needed;
}

// Every tensor and every matrix of summaries that the call has to do with.
void validate_elements(const Problem& p, std::int64_t used_blocks) {
  const std::int64_t dim = std::max(p.key_dim, p.value_dim), blocks = std::max<std::int64_t>(1, used_blocks);
  checked_elements("batch x tokens x heads x dim", {p.batch, p.partition.tokens(), p.heads, dim});
  checked_elements(p.cu_seqlens.empty() ? "batch x kv_heads x blocks x key_dim x value_dim"
                                        : "sequences x kv_heads x blocks x key_dim x value_dim",
                   {p.sequences(), p.kv_heads, blocks, p.key_dim, p.value_dim});
  if (p.mixing_per_head)
    checked_elements("heads x blocks x blocks of mixing", {p.heads, p.mixing_blocks, p.mixing_blocks});
  if (p.mixing_per_row)
    checked_elements("batch x heads x blocks x blocks of mixing",
                     {p.batch, p.heads, p.mixing_blocks, p.mixing_blocks});
}

// Kernels count blocks, and the tokens of one, in 32 bits.
void validate_on_cuda(const Problem& p, std::int64_t used_blocks) {
  constexpr std::int64_t kMost = 0x7fffffff, kHalf = std::int64_t{1} << 30;
  const std::int64_t tokens = p.partition.tokens();
  require(fitted_partition(p).block_capacity() <= kHalf, "partition is a ", p.partition,
          "; on CUDA its blocks may have at most 2^30 tokens");
  require(p.partition.is_line() || tokens <= kMost, "partition is a ", p.partition,
          "; on CUDA a grid may have at most 2^31 - 1 tokens");
  require(p.options.algorithm != Algorithm::dense || tokens <= kHalf, "algorithm is dense for ", tokens,
          " tokens; on CUDA it may have at most 2^30");
  checked_elements("batch or sequences x heads x blocks",
                   {p.sequences(), p.heads, std::max<std::int64_t>(1, used_blocks)}, kMost);
}

void require_given(const char* name, const void* data, const TokenSizes& sizes) {
  require(data != nullptr || sizes.empty(), name, " is null");
}

TokenSizes sizes_of(const Problem& p, std::int64_t heads, std::int64_t dim) {
  return {p.batch, p.partition.tokens(), heads, dim};
}

void require_input(const char* name, const ConstTensor& x, const TokenSizes& sizes) {
  require_given(name, x.data, sizes);
  require_strides(name, x, sizes);
}

void require_output(const char* name, const Tensor& x, const Problem& p, std::int64_t heads, std::int64_t dim) {
  const TokenSizes sizes = sizes_of(p, heads, dim);
  require_given(name, x.data, sizes);
  require_apart(name, x, sizes);
}

template <typename T>
void require_finite_mixing(const void* data, const Problem& p) {
  const auto* mixing = static_cast<const T*>(data);
  const bool causal = p.options.masking != Masking::none;
  const std::int64_t M = p.mixing_blocks;
  const std::int64_t used = causal ? p.final_blocks() : M;
  const auto index = [](std::int64_t n) { return "[" + as_text(n) + "]"; };
  for (std::int64_t n = 0; n < p.mixing_matrices(); ++n)
    for (std::int64_t i = 0; i < used; ++i)
      for (std::int64_t b = 0; b < (causal ? i + 1 : used); ++b) {
        if (std::isfinite(mixing[(n * M + i) * M + b])) continue;
        throw Error("mixing" + (p.mixing_per_row ? index(n / p.heads) : "") +
                    (p.mixing_per_head ? index(n % p.heads) : "") + index(i) + index(b) + " is not finite");
      }
}

// Entries of a matrix in device memory cannot be looked at from here.
void require_finite_mixing(const void* data, const Problem& p) {
  if (p.device != Device::cpu) return;
  if (accumulation_type(p.dtype) == DType::f64)
    require_finite_mixing<double>(data, p);
  else
    require_finite_mixing<float>(data, p);
}

void require_aligned(std::string_view name, const void* memory, const Problem& p) {
  const std::uintptr_t alignment = p.device == Device::cuda ? 256 : 64;
  require(reinterpret_cast<std::uintptr_t>(memory) % alignment == 0, name, " is not aligned to ", alignment, " bytes");
}

void validate_inputs(const Problem& p, const Inputs& in) {
  const TokenSizes queries = sizes_of(p, p.heads, p.key_dim), keys = sizes_of(p, p.kv_heads, p.key_dim);
  require_input("q", in.q, queries);
  require_input("k", in.k, keys);
  require_input("v", in.v, sizes_of(p, p.kv_heads, p.value_dim));
  if (p.separate_denominator) {
    require_input("q_den", in.q_den, queries);
    require_input("k_den", in.k_den, keys);
  } else {
    for (const auto& [name, data] : {std::pair{"q_den", in.q_den.data}, std::pair{"k_den", in.k_den.data}})
      require(data == nullptr, name, " is given, but the problem's separate_denominator is false");
  }
  require(in.mixing != nullptr || p.mixing_matrices() * p.mixing_blocks == 0, "mixing is null");
  require_finite_mixing(in.mixing, p);
  if (p.initial_tokens > 0)
    require(in.initial.S != nullptr, "initial.S is null while initial_tokens is ", p.initial_tokens);
  else
    require(in.initial.S == nullptr, "initial.S is given while initial_tokens is 0");
  if (p.initial_tokens > 0 && p.options.normalizer != Normalizer::none)
    require(in.initial.z != nullptr, "initial.z is null; normalizer ", name(p.options.normalizer), " needs it");
}

}  // namespace

void validate(const Problem& p) {
  require_size("batch", p.batch, 0, kMostBatch);
  require_size("heads", p.heads, 1, kMostHeads);
  require_size("kv_heads", p.kv_heads, 1, p.heads);
  require(p.heads % p.kv_heads == 0, "kv_heads is ", p.kv_heads, "; it must divide heads, ", p.heads);
  const std::int64_t most = p.device == Device::cuda ? kMostDimOnCuda : kMostDim;
  require_size("key_dim", p.key_dim, 1, most);
  require_size("value_dim", p.value_dim, 1, most);
  require_finite("scale", p.options.scale);
  require_finite("eps", p.options.eps);
  require_finite("feature_eps", p.options.feature_eps);
  require(p.partition.tokens() <= kMostTokens, "partition is a ", p.partition, "; it may have at most 2^48 tokens");
  require(p.partition.block_capacity() <= kMostBlockTokens, "partition is a ", p.partition,
          "; its blocks may have at most 2^32 tokens");
  require(!p.separate_denominator || p.options.normalizer != Normalizer::none,
          "q_den and k_den are given (separate_denominator), but normalizer is none: there is no denominator");
  validate_packed(p);
  validate_initial_tokens(p);
  if (p.options.masking != Masking::none) {
    require(p.partition.is_line(), "partition is a ", p.partition, "; causal masking needs a line");
    require(p.options.normalizer != Normalizer::authors,
            "normalizer authors has no causal form; use none or paper with masking ", name(p.options.masking));
  }
  require(p.mixing_per_head || !p.mixing_per_row,
          "mixing_per_row is true while mixing_per_head is false; a matrix per batch row is [B, H, M, M], one per head");
  const std::int64_t used_blocks = validate_mixing_size(p);
  validate_elements(p, used_blocks);
  if (p.device == Device::cuda) validate_on_cuda(p, used_blocks);
}

void validate(const Problem& p, const ForwardArgs& args) {
  validate_inputs(p, args.in);
  require_output("o", args.o, p, p.heads, p.value_dim);
  if (args.final_state.S == nullptr) {
    require(args.final_state.z == nullptr, "final_state.z is given without final_state.S");
    return;
  }
  require(p.options.masking != Masking::none,
          "final_state.S is given; a state needs masking token_causal or block_causal");
  require((args.final_state.z != nullptr) == (p.options.normalizer != Normalizer::none),
          "final_state.z must be given exactly when there is a normalizer");
}

void validate(const Problem& p, const BackwardArgs& args) {
  validate_inputs(p, args.in);
  const TokenSizes outputs = sizes_of(p, p.heads, p.value_dim);
  require_input("d_o", args.d_o, outputs);
  if (p.options.normalizer != Normalizer::none) require_input("o", args.o, outputs);
  require_output("d_q", args.d_q, p, p.heads, p.key_dim);
  require_output("d_k", args.d_k, p, p.kv_heads, p.key_dim);
  require_output("d_v", args.d_v, p, p.kv_heads, p.value_dim);
  if (p.separate_denominator) {
    require_output("d_q_den", args.d_q_den, p, p.heads, p.key_dim);
    require_output("d_k_den", args.d_k_den, p, p.kv_heads, p.key_dim);
  }
  require(args.d_initial.S == nullptr || p.initial_tokens > 0, "d_initial.S is given while initial_tokens is 0");
  require(args.d_final.S == nullptr || p.options.masking != Masking::none,
          "d_final.S is given; a state needs masking token_causal or block_causal");
}

void validate(const Problem& p, const Execution& run, std::size_t needed) {
  require(run.workspace_bytes >= needed, "workspace_bytes is ", run.workspace_bytes, "; the plan needs ", needed);
  require(needed == 0 || run.workspace != nullptr, "workspace is null; the plan needs ", needed, " bytes");
  require_aligned("workspace", run.workspace, p);
  require(run.stream == nullptr || p.device == Device::cuda, "stream is given; it must be null with device cpu");
}

void validate_kept(const Problem& p, const void* kept, std::size_t kept_bytes) {
  require(kept == nullptr || kept_bytes > 0, "kept is given; it must be null where the plan's kept_bytes is 0");
  require_aligned("kept", kept, p);
}

}  // namespace mhla
