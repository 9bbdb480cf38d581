// Kernels of torch.ops.mhla.attention and attention_backward for the CPU, for CUDA and for meta tensors.
#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <span>

#include "core/require.hpp"
#include "mhla/attention.hpp"
#include "torch/planned.hpp"
#include "torch/tensors.hpp"

namespace mhla::dispatch {
namespace {

// How torch's matrix products of f32 are set (torch.set_float32_matmul_precision) holds for the operator's as well.
Float32Products float32_products() {
  const auto precision = at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL);
  return precision == at::Float32Precision::TF32 ? Float32Products::tf32 : Float32Products::ieee;
}

Problem make_problem(const AttentionCall& call) {
  Options options = check_call(call);
  const Device device = mhla_device(call.q);
  const DType dtype = dtype_of(call.q, "q");
  if (device == Device::cuda && dtype == DType::f32) options.float32_products = float32_products();
  std::array<std::int64_t, Partition::kMaxAxes> sizes{};
  const std::size_t axes = std::min(call.sizes.size(), sizes.size());
  for (std::size_t axis = 0; axis < axes; ++axis) sizes[axis] = call.sizes[axis].guard_int(__FILE__, __LINE__);
  return {.device = device,
          .dtype = dtype,
          .batch = call.q.size(0),
          .heads = call.q.size(2),
          .kv_heads = call.k.size(2),
          .key_dim = call.q.size(3),
          .value_dim = call.v.size(3),
          .partition =
              Partition::by_extent(std::span(sizes.data(), axes), std::span(call.extents.data(), call.extents.size())),
          .options = options,
          .mixing_blocks = call.mixing.size(-1),
          .mixing_per_head = call.mixing.dim() > 2,
          .mixing_per_row = call.mixing.dim() == 4,
          .separate_denominator = call.q_den.has_value(),
          .cu_seqlens = call.cu_seqlens ? offsets_of(*call.cu_seqlens) : std::vector<std::int64_t>{},
          .initial_tokens = call.initial_tokens.guard_int(__FILE__, __LINE__)};
}

void check_state_blocks(const AttentionCall& call, const Problem& problem) {
  const std::int64_t blocks = call.state_blocks.guard_int(__FILE__, __LINE__);
  if (blocks >= 0 && blocks != problem.final_blocks()) {
    refuse("state_blocks is ", blocks, "; it must be the blocks of the final state, ", problem.final_blocks());
  }
}

void check_kept(std::string_view argument, std::int64_t bytes, const Plan& plan) {
  if (bytes != 0 && bytes != static_cast<std::int64_t>(plan.kept_bytes())) {
    refuse(argument, " is ", bytes, " bytes; it must be 0 or ", plan.kept_bytes());
  }
}

bool is_symbolic(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides(); }

// Tensors in the form libmhla reads; owns the copies that conversion needs, so it lives as long as the call runs.
class Operands {
 public:
  Operands(const AttentionCall& call, DType dtype)
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
            .mixing = data_of(mixing_),
            .initial = {S_ ? data_of(*S_) : nullptr, z_ ? data_of(*z_) : nullptr}};
  }
  const at::Tensor& mixing() const { return mixing_; }

 private:
  at::Tensor mixing_;
  OptionalTensor S_, z_;
  const AttentionCall& call_;
};

// Gradients arrive in any layout (a sum gives an expanded scalar); libmhla wants a contiguous last axis.
at::Tensor dense_gradient(const OptionalTensor& gradient, const at::Tensor& q, std::int64_t value_dim) {
  if (!gradient) return at::zeros({q.size(0), q.size(1), q.size(2), value_dim}, q.options());
  return gradient->size(3) > 1 && gradient->stride(3) != 1 ? gradient->contiguous() : *gradient;
}

// Gradients of S and z: both or neither (z only with a normaliser), whatever the loss depended on.
std::pair<OptionalTensor, OptionalTensor> final_gradients(const AttentionCall& call, const Gradients& gradients,
                                                          const Problem& problem) {
  if (!gradients.d_S && !gradients.d_z) return {};
  const auto options = call.q.options().dtype(scalar_type(accumulation_type(problem.dtype)));
  const std::vector<std::int64_t> z_sizes{problem.sequences(), problem.kv_heads, problem.final_blocks(),
                                          problem.key_dim};
  std::vector<std::int64_t> S_sizes = z_sizes;
  S_sizes.push_back(problem.value_dim);
  const auto dense = [&](const OptionalTensor& gradient, const char* argument, const std::vector<std::int64_t>& sizes) {
    if (!gradient) return at::zeros(sizes, options);
    check_dense(*gradient, argument);
    check_shape(*gradient, argument, sizes);
    check_dtype(*gradient, argument, at::typeMetaToScalarType(options.dtype()));
    check_device(*gradient, argument, call.q.device(), "that of q, ");
    return gradient->contiguous();
  };
  return {dense(gradients.d_S, "d_S", S_sizes),
          call.has_normalizer() ? OptionalTensor(dense(gradients.d_z, "d_z", z_sizes)) : std::nullopt};
}

void* data_or_null(const at::Tensor& tensor, bool wanted) { return wanted ? mutable_data_of(tensor) : nullptr; }

// The tensor is as the problem has it; what else a call promises of its tensors follows from the problem.
bool has_sizes(const at::Tensor& tensor, const at::Tensor& like, at::ScalarType type, at::IntArrayRef sizes) {
  return tensor.sizes() == sizes && tensor.scalar_type() == type && tensor.device() == like.device();
}
bool are_tokens(const at::Tensor& tensor, const at::Tensor& like, const Problem& p, std::int64_t heads,
                std::int64_t dim) {
  return has_sizes(tensor, like, scalar_type(p.dtype), {p.batch, p.partition.tokens(), heads, dim}) &&
         (dim == 1 || tensor.numel() == 0 || tensor.stride(3) == 1);
}

}  // namespace

Plan plan_call(const AttentionCall& call, const TorchExecution& execution) {
  Plan plan = mhla::plan(make_problem(call), execution.threads());
  check_state_blocks(call, plan.problem());
  return plan;
}

bool is_planned(const AttentionCall& call, const Plan& plan, const TorchExecution& execution) {
  const Problem& p = plan.problem();
  const at::ScalarType accumulated = scalar_type(accumulation_type(p.dtype));
  const std::int64_t M = p.mixing_blocks, blocks = p.initial_blocks();
  std::vector<std::int64_t> mixing_sizes{p.batch, p.heads, M, M};
  mixing_sizes.erase(mixing_sizes.begin(), mixing_sizes.end() - (p.mixing_per_row ? 4 : p.mixing_per_head ? 3 : 2));
  const auto is_twin = [&](const OptionalTensor& twin, std::int64_t heads) {
    return twin.has_value() == p.separate_denominator && (!twin || are_tokens(*twin, call.q, p, heads, p.key_dim));
  };
  return mhla_device(call.q) == p.device && (p.device == Device::cuda || execution.threads() == plan.threads()) &&
         (p.device == Device::cpu || p.dtype != DType::f32 || p.options.float32_products == float32_products()) &&
         are_tokens(call.q, call.q, p, p.heads, p.key_dim) && are_tokens(call.k, call.q, p, p.kv_heads, p.key_dim) &&
         are_tokens(call.v, call.q, p, p.kv_heads, p.value_dim) && is_twin(call.q_den, p.heads) &&
         is_twin(call.k_den, p.kv_heads) && has_sizes(call.mixing, call.q, call.mixing.scalar_type(), mixing_sizes) &&
         at::isFloatingType(call.mixing.scalar_type()) &&
         (!call.initial_S || has_sizes(*call.initial_S, call.q, accumulated,
                                       {p.sequences(), p.kv_heads, blocks, p.key_dim, p.value_dim})) &&
         (!call.initial_z ||
          has_sizes(*call.initial_z, call.q, accumulated, {p.sequences(), p.kv_heads, blocks, p.key_dim}));
}

// Into `kept`, where there is room in it, goes what the backward pass can use.
ForwardResult run_forward(const AttentionCall& call, const Plan& plan, TorchExecution& execution,
                          const at::Tensor& kept) {
  const Operands operands(call, plan.problem().dtype);
  ForwardResult result = allocate_forward(call);
  auto& [o, S, z] = result;
  const bool state_wanted = call.state_blocks >= 0;
  forward(plan, {.in = operands.inputs(),
                 .o = mutable_view(o),
                 .final_state = {data_or_null(S, state_wanted), data_or_null(z, state_wanted && call.has_normalizer())},
                 .kept = data_or_null(kept, kept.defined() && kept.numel() > 0),
                 .run = execution.run(plan.forward_workspace())});
  return result;
}

BackwardResult run_backward(const AttentionCall& call, const Plan& plan, TorchExecution& execution,
                            const Gradients& gradients) {
  const Problem& problem = plan.problem();
  check_gradients(call, gradients);
  if (gradients.kept) check_kept("kept", gradients.kept->numel(), plan);
  const Operands operands(call, problem.dtype);
  BackwardResult result = allocate_backward(call, gradients);
  auto& [d_q, d_k, d_v, d_mixing, d_q_den, d_k_den, d_initial_S, d_initial_z] = result;
  const bool same_type = d_mixing.scalar_type() == operands.mixing().scalar_type();
  const at::Tensor d_mixing_accumulated =
      same_type || !gradients.mixing_wanted ? d_mixing : at::empty_like(operands.mixing());
  const at::Tensor d_o = dense_gradient(gradients.d_o, call.q, call.v.size(3));
  const auto [d_S, d_z] = final_gradients(call, gradients, problem);
  backward(plan, {.in = operands.inputs(),
                  .o = const_view(gradients.o),
                  .d_o = const_view(d_o),
                  .d_final = {d_S ? data_of(*d_S) : nullptr, d_z ? data_of(*d_z) : nullptr},
                  .d_q = mutable_view(d_q),
                  .d_k = mutable_view(d_k),
                  .d_v = mutable_view(d_v),
                  .d_q_den = call.q_den ? mutable_view(d_q_den) : Tensor{},
                  .d_k_den = call.k_den ? mutable_view(d_k_den) : Tensor{},
                  .d_mixing = data_or_null(d_mixing_accumulated, gradients.mixing_wanted),
                  .d_initial = {data_or_null(d_initial_S, call.initial_S.has_value()),
                                data_or_null(d_initial_z, call.initial_z.has_value())},
                  .kept = gradients.kept && gradients.kept->numel() > 0 ? data_of(*gradients.kept) : nullptr,
                  .run = execution.run(plan.backward_workspace())});
  if (!same_type && gradients.mixing_wanted) d_mixing.copy_(d_mixing_accumulated);
  return result;
}

std::int64_t bytes_to_keep(const AttentionCall& call) {
  if (call.cu_seqlens || call.initial_tokens.is_symbolic() || is_symbolic(call.mixing)) return 0;
  if (is_symbolic(call.q) || is_symbolic(call.k) || is_symbolic(call.v)) return 0;
  c10::OptionalDeviceGuard device;  // what is kept depends on it
  if (call.q.is_cuda()) device.reset_device(call.q.device());
  return static_cast<std::int64_t>(mhla::plan(make_problem(call), 1).kept_bytes());  // the same for any threads
}

ForwardResult forward_device(const AttentionCall& call) {
  check_dense(call.q, "q");  // which says where to run
  TorchExecution execution(call.q);
  return run_forward(call, plan_call(call, execution), execution, {});
}

KeepingResult keeping_device(const AttentionCall& call, const Keeping& keeping) {
  check_dense(call.q, "q");  // which says where to run
  TorchExecution execution(call.q);
  const Plan plan = plan_call(call, execution);
  const at::Tensor kept = allocate_kept(call, keeping);
  check_kept("keep", kept.numel(), plan);
  return std::tuple_cat(run_forward(call, plan, execution, kept), std::tuple(kept));
}

BackwardResult backward_device(const AttentionCall& call, const Gradients& gradients) {
  check_dense(call.q, "q");  // which says where to run
  TorchExecution execution(call.q);
  return run_backward(call, plan_call(call, execution), execution, gradients);
}

void check_call_without_values(const AttentionCall& call) {
  check_call(call);
  require_finite("scale", call.scale);
  require_finite("eps", call.eps);
  require_finite("feature_eps", call.feature_eps);
}

ForwardResult forward_meta(const AttentionCall& call) {
  check_call_without_values(call);
  return allocate_forward(call);
}

KeepingResult keeping_meta(const AttentionCall& call, const Keeping& keeping) {
  return std::tuple_cat(forward_meta(call), std::tuple(allocate_kept(call, keeping)));
}

BackwardResult backward_meta(const AttentionCall& call, const Gradients& gradients) {
  check_call_without_values(call);
  check_gradients(call, gradients);
  return allocate_backward(call, gradients);
}

}  // namespace mhla::dispatch
