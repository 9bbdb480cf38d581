// Checks, allocations and views of tensors.hpp.
#include "torch/tensors.hpp"

#include "core/sizes.hpp"

namespace mhla::dispatch {
namespace {

void check_size(const at::Tensor& tensor, std::string_view argument, int axis, const char* axis_name,
                const c10::SymInt& expected, const char* why) {
  if (tensor.sym_size(axis) != expected) {
    refuse(argument, " has ", axis_name, " ", tensor.sym_size(axis), " (axis ", axis, "); it must be ", expected, ", ",
           why);
  }
}

void check_between(const at::Tensor& tensor, std::string_view argument, int axis, const char* axis_name,
                   std::int64_t least, std::int64_t most) {
  const c10::SymInt size = tensor.sym_size(axis);
  if (!size.is_symbolic() && (size < least || size > most)) {
    refuse(argument, " has ", axis_name, " ", size, " (axis ", axis, "); it must be from ", least, " to ", most);
  }
}

// What plan() checks too, but by the names of a Problem.
void check_widths(const AttentionCall& call) {
  const std::int64_t most = call.q.is_cuda() ? kMostDimOnCuda : kMostDim;
  check_between(call.q, "q", 0, "batch", 0, kMostBatch);
  check_between(call.q, "q", 2, "heads", 1, kMostHeads);
  check_between(call.q, "q", 3, "key width", 1, most);
  check_between(call.v, "v", 3, "value width", 1, most);
}

void check_same_kind(const at::Tensor& tensor, std::string_view argument, const at::Tensor& q) {
  check_dtype(tensor, argument, q.scalar_type(), "that of q, ");
  check_device(tensor, argument, q.device(), "that of q, ");
}

void check_mixing(const AttentionCall& call) {
  const at::Tensor& mixing = call.mixing;
  check_dense(mixing, "mixing");
  if (mixing.dim() < 2 || mixing.dim() > 4) {
    refuse("mixing has ", mixing.dim(), " axes; it must be [M, M], [H, M, M] or [B, H, M, M]");
  }
  check_floating(mixing, "mixing");
  check_device(mixing, "mixing", call.q.device(), "that of q, ");
  if (mixing.sym_size(-1) != mixing.sym_size(-2)) {
    refuse("mixing is ", mixing.sym_size(-2), " x ", mixing.sym_size(-1), "; it must be a square matrix");
  }
  if (mixing.dim() == 4) check_size(mixing, "mixing", 0, "batch", call.q.sym_size(0), "batch of q");
  if (mixing.dim() > 2) check_size(mixing, "mixing", mixing.dim() - 3, "heads", call.q.sym_size(2), "heads of q");
}

c10::SymInt state_rows(const AttentionCall& call) {
  return call.cu_seqlens ? call.cu_seqlens->sym_size(0) - 1 : call.q.sym_size(0);
}

void check_state_tensor(const AttentionCall& call, const at::Tensor& state, std::string_view argument, int axes) {
  check_dense(state, argument);
  if (state.dim() != axes) {
    refuse(argument, " has ", state.dim(), " axes; it must be ",
           axes == 5 ? "[B, H, blocks, Dk, Dv]" : "[B, H, blocks, Dk]");
  }
  const at::ScalarType expected = scalar_type(accumulation_type(dtype_of(call.q, "q")));
  check_dtype(state, argument, expected, "the accumulation type of q, ");
  check_device(state, argument, call.q.device(), "that of q, ");
  check_size(state, argument, 0, "sequences", state_rows(call), "batch of q, or packed sequences");
  check_size(state, argument, 1, "heads", call.k.sym_size(2), "heads of k");
  const c10::SymInt extent = call.extents.empty() ? 1 : call.extents[0];
  check_size(state, argument, 2, "blocks", (call.initial_tokens + extent - 1) / extent, "blocks of initial_tokens");
  check_size(state, argument, 3, "key width", call.k.sym_size(3), "key width of k");
  if (axes == 5) check_size(state, argument, 4, "value width", call.v.sym_size(3), "value width of v");
}

void check_initial_state(const AttentionCall& call) {
  if (call.initial_tokens < 0) refuse("initial_tokens is ", call.initial_tokens, "; it must be at least 0");
  if (call.initial_tokens > kMostTokens) refuse("initial_tokens is ", call.initial_tokens, "; it must be at most 2^48");
  if (call.initial_tokens > 0 && !call.initial_S)
    refuse("initial_S is missing; it must be given with initial_tokens > 0");
  if (call.initial_S) check_state_tensor(call, *call.initial_S, "initial_S", 5);
  if (!call.has_normalizer() && call.initial_z) refuse("initial_z is given; it must not be with normalizer 'none'");
  if (call.has_normalizer() && call.initial_S && !call.initial_z) {
    refuse("initial_z is missing; it must be given beside initial_S with normalizer '", call.normalizer, "'");
  }
  if (call.initial_z && !call.initial_S) refuse("initial_S is missing; it must be given beside initial_z");
  if (call.initial_z) check_state_tensor(call, *call.initial_z, "initial_z", 4);
}

// What Partition checks, on sizes that may be symbolic.
void check_partition(const AttentionCall& call) {
  std::int64_t capacity = 1;
  for (const std::int64_t extent : call.extents) {
    if (extent < 1) refuse("partition has a block extent of ", extent, "; it must be at least 1");
    if (extent > kMostBlockTokens / capacity) {
      refuse("partition has blocks of extents ", call.extents, "; they must have at most 2^32 tokens");
    }
    capacity *= extent;
  }
  c10::SymInt tokens = 1;
  for (const c10::SymInt& size : call.sizes) {
    std::int64_t product = 0;
    if (!size.is_symbolic() && !tokens.is_symbolic() &&
        (size < 0 || __builtin_mul_overflow(tokens.expect_int(), size.expect_int(), &product))) {
      refuse("partition has sizes ", call.sizes, "; their product must be the tokens of q, ", call.q.sym_size(1));
    }
    tokens = tokens * size;
  }
  if (tokens != call.q.sym_size(1)) {
    refuse("partition has ", tokens, " tokens; it must be ", call.q.sym_size(1), " (tokens of q, axis 1)");
  }
}

void check_offsets(const at::Tensor& offsets) {
  check_dense(offsets, "cu_seqlens");
  if (offsets.dim() != 1) refuse("cu_seqlens has ", offsets.dim(), " axes; it must be 1");
  if (offsets.scalar_type() != at::kLong && offsets.scalar_type() != at::kInt) {
    refuse("cu_seqlens has dtype ", offsets.scalar_type(), "; it must be int64 or int32");
  }
  if (offsets.sym_size(0) < 2) refuse("cu_seqlens has ", offsets.sym_size(0), " entries; it must be at least 2");
}

void check_cu_seqlens(const AttentionCall& call) {
  if (!call.cu_seqlens) return;
  check_offsets(*call.cu_seqlens);
  // Beside one meta tensor the dispatcher takes all for meta tensors.
  if (call.cu_seqlens->is_meta() && !call.q.is_meta())
    refuse("cu_seqlens has device meta; it must be cpu, or that of q, ", call.q.device());
}

at::Tensor like(const at::Tensor& tensor) { return at::empty_symint(tensor.sym_sizes(), tensor.options()); }

// What is returned where nothing was asked for. at::empty takes microseconds for it, of which a small call has few.
at::Tensor nothing(const at::Tensor& q, at::ScalarType type) {
  if (!q.is_cpu() && !q.is_cuda()) return at::empty({0}, q.options().dtype(type));
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, q.device()));
  const auto key = q.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key),
                                                  c10::scalarTypeToTypeMeta(type));
}

at::Tensor like(const OptionalTensor& tensor, const at::Tensor& q) {
  return tensor ? like(*tensor) : nothing(q, q.scalar_type());
}

}  // namespace

Options check_call(const AttentionCall& call) {
  const Options options{.feature_map = parse_feature_map(call.feature_map),
                        .normalizer = parse_normalizer(call.normalizer),
                        .masking = parse_masking(call.masking),
                        .algorithm = parse_algorithm(call.algorithm),
                        .scale = call.scale,
                        .eps = call.eps,
                        .feature_eps = call.feature_eps};
  const at::Tensor& q = call.q;
  check_tokens(q, "q");
  check_tokens(call.k, "k");
  check_tokens(call.v, "v");
  check_same_kind(call.k, "k", q);
  check_same_kind(call.v, "v", q);
  check_widths(call);
  check_size(call.k, "k", 0, "batch", q.sym_size(0), "batch of q");
  check_size(call.k, "k", 1, "tokens", q.sym_size(1), "tokens of q");
  check_size(call.k, "k", 3, "key width", q.sym_size(3), "key width of q");
  check_size(call.v, "v", 0, "batch", q.sym_size(0), "batch of q");
  check_size(call.v, "v", 1, "tokens", q.sym_size(1), "tokens of q");
  check_size(call.v, "v", 2, "heads", call.k.sym_size(2), "heads of k");
  const c10::SymInt heads = q.sym_size(2), kv_heads = call.k.sym_size(2);
  if (kv_heads < 1 || heads % kv_heads != 0) {
    refuse("k has heads ", kv_heads, " (axis 2); it must be a divisor of the heads of q, ", heads);
  }
  for (const auto& [tensor, argument, twin] :
       {std::tuple(&call.q_den, "q_den", &q), std::tuple(&call.k_den, "k_den", &call.k)}) {
    if (!tensor->has_value()) continue;
    if (!call.has_normalizer()) refuse(argument, " is given; it must not be with normalizer 'none'");
    check_tokens(**tensor, argument);
    check_same_kind(**tensor, argument, q);
    for (int axis = 0; axis < 4; ++axis) {
      check_size(**tensor, argument, axis, "size", twin->sym_size(axis), "as the tensor it replaces");
    }
  }
  if (call.q_den.has_value() != call.k_den.has_value()) {
    refuse(call.q_den ? "k_den" : "q_den", " is missing; it must be given beside ", call.q_den ? "q_den" : "k_den");
  }
  if (call.sizes.size() != call.extents.size() || call.sizes.empty()) {
    refuse("partition has ", call.sizes.size(), " sizes and ", call.extents.size(),
           " extents; it must be one to three of each");
  }
  check_partition(call);
  check_mixing(call);
  check_cu_seqlens(call);
  check_initial_state(call);
  if (call.state_blocks < -1) refuse("state_blocks is ", call.state_blocks, "; it must be -1 (none) or more");
  return options;
}

void check_gradients(const AttentionCall& call, const Gradients& gradients) {
  if (call.has_normalizer() && !gradients.o) {
    refuse("o is missing; it must be the forward output with normalizer '", call.normalizer, "'");
  }
  for (const auto& [tensor, argument] : {std::pair(&gradients.o, "o"), std::pair(&gradients.d_o, "d_o")}) {
    if (!tensor->has_value()) continue;
    if ((*tensor)->dim() != 4) refuse(argument, " has ", (*tensor)->dim(), " axes; it must be 4, as the output has");
    check_same_kind(**tensor, argument, call.q);
    for (int axis = 0; axis < 3; ++axis) {
      check_size(**tensor, argument, axis, "size", call.q.sym_size(axis), "as the output has");
    }
    check_size(**tensor, argument, 3, "value width", call.v.sym_size(3), "value width of v");
  }
  if (gradients.o) check_tokens(*gradients.o, "o");
  if (!gradients.kept) return;
  const at::Tensor& kept = *gradients.kept;
  if (kept.scalar_type() != at::kByte || kept.device() != call.q.device() || kept.dim() != 1 || !kept.is_contiguous()) {
    refuse("kept is a ", kept.dtype().name(), " tensor of ", kept.dim(), " axes on ", kept.device(),
           "; it must be what attention_keeping returned: contiguous bytes beside q");
  }
}

ForwardResult allocate_forward(const AttentionCall& call) {
  const at::Tensor& q = call.q;
  const c10::SymInt value_dim = call.v.sym_size(3);
  at::Tensor o = at::empty_symint({q.sym_size(0), q.sym_size(1), q.sym_size(2), value_dim}, q.options());
  const at::ScalarType state_type = scalar_type(accumulation_type(dtype_of(q, "q")));
  at::Tensor S = nothing(q, state_type), z = nothing(q, state_type);
  if (call.state_blocks >= 0) {
    const auto state_options = q.options().dtype(state_type);
    const c10::SymInt rows = state_rows(call), heads = call.k.sym_size(2), key_dim = q.sym_size(3);
    S = at::empty_symint({rows, heads, call.state_blocks, key_dim, value_dim}, state_options);
    if (call.has_normalizer()) z = at::empty_symint({rows, heads, call.state_blocks, key_dim}, state_options);
  }
  return {o, S, z};
}

at::Tensor allocate_kept(const AttentionCall& call, const Keeping& keeping) {
  if (keeping.bytes < 0)
    refuse("keep is ", keeping.bytes, "; it must be the bytes to keep for the backward pass, or 0");
  return at::empty_symint({keeping.bytes}, call.q.options().dtype(at::kByte));
}

BackwardResult allocate_backward(const AttentionCall& call, const Gradients& gradients) {
  return {like(call.q),
          like(call.k),
          like(call.v),
          gradients.mixing_wanted ? like(call.mixing) : nothing(call.q, call.mixing.scalar_type()),
          like(call.q_den, call.q),
          like(call.k_den, call.q),
          like(call.initial_S, call.q),
          like(call.initial_z, call.q)};
}

ConstTensor const_view(const at::Tensor& tensor) {
  return {data_of(tensor), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

ConstTensor const_view(const OptionalTensor& tensor) { return tensor ? const_view(*tensor) : ConstTensor{}; }

Tensor mutable_view(const at::Tensor& tensor) {
  return {mutable_data_of(tensor), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

std::vector<std::int64_t> offsets_of(const at::Tensor& cu_seqlens) {
  check_offsets(cu_seqlens);
  const at::Tensor offsets = resolved(cu_seqlens, "cu_seqlens").to(at::kCPU, at::kLong).contiguous();
  const auto* first = static_cast<const std::int64_t*>(data_of(offsets));
  return {first, first + offsets.numel()};
}

}  // namespace mhla::dispatch
