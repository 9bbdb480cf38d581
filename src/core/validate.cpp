// What the operator accepts. plan() checks the problem, forward() and backward() the pointers of one execution.
#include "core/validate.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "core/layout.hpp"

namespace mhla {
namespace {

constexpr std::int64_t kMaxDim = 4096;
constexpr std::int64_t kMaxDimOnCuda = 256;

std::string text(std::int64_t value) { return std::to_string(value); }
std::string text(std::size_t value) { return std::to_string(value); }
std::string text(std::string_view value) { return std::string(value); }
std::string text(const Partition& value) { return value.describe(); }

// The message is put together only when it is needed.
template <typename... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) throw Error((text(parts) + ...));
}

void require_range(const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
  require(value >= low && value <= high, name, " is ", value, "; it must be from ", low, " to ", high);
}

void require_finite(const char* name, double value) { require(std::isfinite(value), name, " is not finite"); }

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
  require(p.initial_tokens >= 0, "initial_tokens is ", p.initial_tokens, "; it must not be negative");
  if (p.initial_tokens == 0) return;
  require(p.options.masking != Masking::none, "initial_tokens is ", p.initial_tokens,
          "; an initial state needs masking token_causal or block_causal");
  require(p.partition.is_line(), "partition is a ", p.partition, "; with initial_tokens it must be a line");
  if (p.options.masking == Masking::block_causal)
    require(p.initial_tokens % p.partition.block_capacity() == 0, "initial_tokens is ", p.initial_tokens,
            "; with masking block_causal it must be a multiple of the block size, ", p.partition.block_capacity());
}

void validate_mixing_size(const Problem& p) {
  const bool corner_allowed = p.options.masking != Masking::none || !p.cu_seqlens.empty();
  const std::int64_t needed = corner_allowed ? p.final_blocks() : p.partition.blocks();
  if (corner_allowed)
    require(p.mixing_blocks >= needed, "mixing is for ", p.mixing_blocks, " blocks; this call uses ", needed,
            " (pass a larger matrix, or extend it with extend_causal_mixing)");
  else
    require(p.mixing_blocks == needed, "mixing is for ", p.mixing_blocks, " blocks; the partition (", p.partition,
            ") has ", needed);
  require(p.mixing_blocks <= (std::int64_t{1} << 24), "mixing is for ", p.mixing_blocks,
          " blocks; at most 2^24 are supported");
}

void require_tensor(const char* name, const void* data, const Problem& p) {
  require(data != nullptr || p.partition.tokens() == 0 || p.batch == 0, name, " is null");
}

void require_strides(const char* name, std::int64_t token_stride, std::int64_t head_stride, std::int64_t batch_stride,
                     const Problem& p, std::int64_t heads, std::int64_t dim) {
  // An output whose rows overlap would be written twice.
  if (p.partition.tokens() == 0) return;
  const auto bad = [&](const char* which, std::int64_t stride, std::int64_t count) {
    require(count <= 1 || std::abs(stride) >= dim, name, " has a ", which, " stride of ", stride, "; rows of ", dim,
            " elements would overlap");
  };
  bad("token", token_stride, p.partition.tokens());
  bad("head", head_stride, heads);
  bad("batch", batch_stride, p.batch);
}

void require_output(const char* name, const Tensor& x, const Problem& p, std::int64_t heads, std::int64_t dim) {
  require_tensor(name, x.data, p);
  require_strides(name, x.token_stride, x.head_stride, x.batch_stride, p, heads, dim);
}

template <typename T>
void require_finite_mixing(const void* data, const Problem& p) {
  const auto* mixing = static_cast<const T*>(data);
  const bool causal = p.options.masking != Masking::none;
  const std::int64_t M = p.mixing_blocks;
  const std::int64_t used = causal ? p.final_blocks() : M;
  for (std::int64_t h = 0; h < (p.mixing_per_head ? p.heads : 1); ++h)
    for (std::int64_t i = 0; i < used; ++i)
      for (std::int64_t b = 0; b < (causal ? i + 1 : used); ++b) {
        if (std::isfinite(mixing[(h * M + i) * M + b])) continue;
        throw Error("mixing" + (p.mixing_per_head ? "[" + text(h) + "]" : std::string()) + "[" + text(i) + "][" +
                    text(b) + "] is not finite");
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
  require_tensor("q", in.q.data, p);
  require_tensor("k", in.k.data, p);
  require_tensor("v", in.v.data, p);
  for (const auto& [name, data] : {std::pair{"q_den", in.q_den.data}, std::pair{"k_den", in.k_den.data}}) {
    if (p.separate_denominator)
      require_tensor(name, data, p);
    else
      require(data == nullptr, name, " is given, but the problem's separate_denominator is false");
  }
  require(in.mixing != nullptr || p.mixing_blocks == 0, "mixing is null");
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
  require_range("batch", p.batch, 0, std::int64_t{1} << 40);
  require_range("heads", p.heads, 1, 1 << 20);
  require_range("kv_heads", p.kv_heads, 1, p.heads);
  require(p.heads % p.kv_heads == 0, "kv_heads is ", p.kv_heads, "; it must divide heads, ", p.heads);
  const std::int64_t most = p.device == Device::cuda ? kMaxDimOnCuda : kMaxDim;
  require_range("key_dim", p.key_dim, 1, most);
  require_range("value_dim", p.value_dim, 1, most);
  require_finite("scale", p.options.scale);
  require_finite("eps", p.options.eps);
  require_finite("feature_eps", p.options.feature_eps);
  std::int64_t elements = 0;
  const bool overflow = __builtin_mul_overflow(p.batch, p.partition.tokens(), &elements) ||
                        __builtin_mul_overflow(elements, p.heads, &elements) ||
                        __builtin_mul_overflow(elements, std::max(p.key_dim, p.value_dim) * 8, &elements);
  require(!overflow, "batch x tokens x heads x dim does not fit 63 bits");
  require(!p.separate_denominator || p.options.normalizer != Normalizer::none,
          "q_den and k_den are given (separate_denominator), but normalizer is none: there is no denominator");
  validate_packed(p);
  validate_initial_tokens(p);
  if (p.options.masking != Masking::none) {
    require(p.partition.is_line(), "partition is a ", p.partition, "; causal masking needs a line");
    require(p.options.normalizer != Normalizer::authors,
            "normalizer authors has no causal form; use none or paper with masking ", name(p.options.masking));
  }
  validate_mixing_size(p);
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
  require_tensor("d_o", args.d_o.data, p);
  if (p.options.normalizer != Normalizer::none) require_tensor("o", args.o.data, p);
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
