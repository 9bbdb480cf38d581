// CPU and meta kernels of torch.ops.mhla.attention and attention_backward.
#include "mhla/attention.hpp"
#include "torch/tensors.hpp"

namespace mhla::dispatch {
namespace {

std::vector<std::int64_t> read_offsets(const OptionalTensor& cu_seqlens) {
  if (!cu_seqlens) return {};
  const at::Tensor offsets = cu_seqlens->to(at::kCPU, at::kLong).contiguous();
  const auto* first = offsets.const_data_ptr<std::int64_t>();
  return {first, first + offsets.numel()};
}

Problem make_problem(const Call& call) {
  check_call(call);
  std::vector<std::int64_t> sizes;
  for (const c10::SymInt& size : call.sizes) sizes.push_back(size.guard_int(__FILE__, __LINE__));
  return {.dtype = dtype_of(call.q, "q"),
          .batch = call.q.size(0),
          .heads = call.q.size(2),
          .kv_heads = call.k.size(2),
          .key_dim = call.q.size(3),
          .value_dim = call.v.size(3),
          .partition = Partition::by_extent(sizes, call.extents),
          .options = {.feature_map = parse_feature_map(call.feature_map),
                      .normalizer = parse_normalizer(call.normalizer),
                      .masking = parse_masking(call.masking),
                      .algorithm = parse_algorithm(call.algorithm),
                      .scale = call.scale,
                      .eps = call.eps,
                      .feature_eps = call.feature_eps},
          .mixing_blocks = call.mixing.size(-1),
          .mixing_per_head = call.mixing.dim() == 3,
          .separate_denominator = call.q_den.has_value(),
          .cu_seqlens = read_offsets(call.cu_seqlens),
          .initial_tokens = call.initial_tokens.guard_int(__FILE__, __LINE__)};
}

void check_state_blocks(const Call& call, const Problem& problem) {
  const std::int64_t blocks = call.state_blocks.guard_int(__FILE__, __LINE__);
  if (blocks >= 0 && blocks != problem.final_blocks()) {
    throw Error("state_blocks is " + std::to_string(blocks) + "; it must be the blocks of the final state, " +
                std::to_string(problem.final_blocks()));
  }
}

// Tensors in the form libmhla reads; owns the copies that conversion needs, so it lives as long as the call runs.
class Operands {
 public:
  Operands(const Call& call, DType dtype)
      : mixing_(call.mixing.to(scalar_type(accumulation_type(dtype))).contiguous()), call_(call) {
    if (call.initial_S) S_ = call.initial_S->contiguous();
    if (call.initial_z) z_ = call.initial_z->contiguous();
  }

  Inputs inputs() const {
    return {.q = const_view(call_.q),
            .k = const_view(call_.k),
            .v = const_view(call_.v),
            .q_den = const_view(call_.q_den),
            .k_den = const_view(call_.k_den),
            .mixing = mixing_.const_data_ptr(),
            .initial = {S_ ? S_->const_data_ptr() : nullptr, z_ ? z_->const_data_ptr() : nullptr}};
  }
  const at::Tensor& mixing() const { return mixing_; }

 private:
  at::Tensor mixing_;
  OptionalTensor S_, z_;
  const Call& call_;
};

// torch allocates on 64-byte borders, which is what a workspace needs.
at::Tensor workspace_tensor(std::size_t bytes) {
  return at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions(at::kByte));
}

// Gradients arrive in any layout (a sum gives an expanded scalar); libmhla wants a contiguous last axis.
at::Tensor dense_gradient(const OptionalTensor& gradient, const at::Tensor& q, std::int64_t value_dim) {
  if (!gradient) return at::zeros({q.size(0), q.size(1), q.size(2), value_dim}, q.options());
  return gradient->size(3) > 1 && gradient->stride(3) != 1 ? gradient->contiguous() : *gradient;
}

// Gradients of S and z: both or neither (z only with a normaliser), whatever the loss depended on.
std::pair<OptionalTensor, OptionalTensor> final_gradients(const Call& call, const Gradients& gradients,
                                                          const Problem& problem) {
  if (!gradients.d_S && !gradients.d_z) return {};
  const auto options = call.q.options().dtype(scalar_type(accumulation_type(problem.dtype)));
  const std::vector<std::int64_t> z_sizes{problem.sequences(), problem.kv_heads, problem.final_blocks(),
                                          problem.key_dim};
  std::vector<std::int64_t> S_sizes = z_sizes;
  S_sizes.push_back(problem.value_dim);
  const auto dense = [&](const OptionalTensor& gradient, const std::vector<std::int64_t>& sizes) {
    return gradient ? gradient->contiguous() : at::zeros(sizes, options);
  };
  return {dense(gradients.d_S, S_sizes),
          call.has_normalizer() ? OptionalTensor(dense(gradients.d_z, z_sizes)) : std::nullopt};
}

void* data_or_null(const at::Tensor& tensor, bool wanted) { return wanted ? tensor.mutable_data_ptr() : nullptr; }

void check_gradients(const Call& call, const Gradients& gradients) {
  if (call.has_normalizer() && !gradients.o) {
    throw Error("o is missing; it must be the forward output with normalizer '" + call.normalizer + "'");
  }
  if (gradients.o) check_token_tensor(*gradients.o, "o");
}

}  // namespace

ForwardResult forward_cpu(const Call& call) {
  const Problem problem = make_problem(call);
  check_state_blocks(call, problem);
  const Parallel parallel = torch_parallel();
  const Plan plan = mhla::plan(problem, parallel.threads);
  const Operands operands(call, problem.dtype);
  ForwardResult result = allocate_forward(call);
  auto& [o, S, z] = result;
  const bool state_wanted = call.state_blocks >= 0;
  const at::Tensor workspace = workspace_tensor(plan.forward_workspace());
  forward(plan, {.in = operands.inputs(),
                 .o = mutable_view(o),
                 .final_state = {data_or_null(S, state_wanted), data_or_null(z, state_wanted && call.has_normalizer())},
                 .run = {workspace.mutable_data_ptr(), plan.forward_workspace(), &parallel}});
  return result;
}

BackwardResult backward_cpu(const Call& call, const Gradients& gradients) {
  const Problem problem = make_problem(call);
  check_state_blocks(call, problem);
  check_gradients(call, gradients);
  const Parallel parallel = torch_parallel();
  const Plan plan = mhla::plan(problem, parallel.threads);
  const Operands operands(call, problem.dtype);
  BackwardResult result = allocate_backward(call, gradients);
  auto& [d_q, d_k, d_v, d_mixing, d_q_den, d_k_den, d_initial_S, d_initial_z] = result;
  const at::Tensor d_mixing_accumulated = gradients.mixing_wanted ? at::empty_like(operands.mixing()) : at::Tensor();

  const at::Tensor d_o = dense_gradient(gradients.d_o, call.q, call.v.size(3));
  const auto [d_S, d_z] = final_gradients(call, gradients, problem);
  const at::Tensor workspace = workspace_tensor(plan.backward_workspace());
  backward(plan, {.in = operands.inputs(),
                  .o = const_view(gradients.o),
                  .d_o = const_view(d_o),
                  .d_final = {d_S ? d_S->const_data_ptr() : nullptr, d_z ? d_z->const_data_ptr() : nullptr},
                  .d_q = mutable_view(d_q),
                  .d_k = mutable_view(d_k),
                  .d_v = mutable_view(d_v),
                  .d_q_den = call.q_den ? mutable_view(d_q_den) : Tensor{},
                  .d_k_den = call.k_den ? mutable_view(d_k_den) : Tensor{},
                  .d_mixing = gradients.mixing_wanted ? d_mixing_accumulated.mutable_data_ptr() : nullptr,
                  .d_initial = {data_or_null(d_initial_S, call.initial_S.has_value()),
                                data_or_null(d_initial_z, call.initial_z.has_value())},
                  .run = {workspace.mutable_data_ptr(), plan.backward_workspace(), &parallel}});
  if (gradients.mixing_wanted) d_mixing = d_mixing_accumulated.to(call.mixing.scalar_type());
  return result;
}

ForwardResult forward_meta(const Call& call) {
  check_call(call);
  return allocate_forward(call);
}

BackwardResult backward_meta(const Call& call, const Gradients& gradients) {
  check_call(call);
  check_gradients(call, gradients);
  return allocate_backward(call, gradients);
}

}  // namespace mhla::dispatch
