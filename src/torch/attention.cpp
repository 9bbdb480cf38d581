// mhla::attention and the LibTorch module (include/mhla/torch.hpp).
#include <string>
#include <vector>

#include "mhla/torch.hpp"
#include "torch/arguments.hpp"
#include "torch/tensors.hpp"

namespace mhla {
namespace {

dispatch::ForwardResult call_operator(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                      const at::Tensor& mixing, const AttentionOptions& options,
                                      std::int64_t state_blocks) {
  const auto sizes = options.partition.sizes(), extents = options.partition.extents();
  const std::vector<c10::SymInt> symbolic_sizes(sizes.begin(), sizes.end());
  return dispatch::call_forward({.q = q,
                                 .k = k,
                                 .v = v,
                                 .mixing = mixing,
                                 .sizes = symbolic_sizes,
                                 .extents = {extents.data(), extents.size()},
                                 .feature_map = name(options.feature_map),
                                 .normalizer = name(options.normalizer),
                                 .masking = name(options.masking),
                                 .algorithm = name(options.algorithm),
                                 .scale = options.scale,
                                 .eps = options.eps,
                                 .feature_eps = options.feature_eps,
                                 .q_den = options.q_den,
                                 .k_den = options.k_den,
                                 .cu_seqlens = options.cu_seqlens,
                                 .initial_S = options.initial_S,
                                 .initial_z = options.initial_z,
                                 .initial_tokens = options.initial_tokens,
                                 .state_blocks = state_blocks});
}

std::int64_t final_blocks(const AttentionOptions& options) {
  Problem problem;
  problem.partition = options.partition;
  problem.options.masking = options.masking;
  problem.initial_tokens = options.initial_tokens;
  if (options.cu_seqlens) problem.cu_seqlens = dispatch::offsets_of(*options.cu_seqlens);
  return problem.final_blocks();
}

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mixing,
                     const AttentionOptions& options) {
  return std::get<0>(call_operator(q, k, v, mixing, options, -1));
}

AttentionResult attention_with_state(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const at::Tensor& mixing, const AttentionOptions& options) {
  const auto [o, S, z] = call_operator(q, k, v, mixing, options, final_blocks(options));
  return {o, S, z};
}

namespace nn {

MultiHeadLinearAttentionImpl::MultiHeadLinearAttentionImpl(const MultiHeadLinearAttentionOptions& options)
    : options(options) {
  MultiHeadLinearAttentionImpl::reset();
}

void MultiHeadLinearAttentionImpl::reset() {
  const std::int64_t dim = options.dim(), heads = options.heads();
  if (heads < 1 || dim < 1 || dim % heads != 0) {
    throw Error("heads is " + std::to_string(heads) + "; it must be a divisor of dim, " + std::to_string(dim));
  }
  qkv = register_module("qkv", torch::nn::Linear(torch::nn::LinearOptions(dim, 3 * dim).bias(options.qkv_bias())));
  proj = register_module("proj", torch::nn::Linear(dim, dim));
  at::Tensor initial = mixing_tensor(options.partition(), options.mixing_init());
  if (options.mixing_per_head()) initial = initial.expand({heads, -1, -1}).clone();
  mixing = register_parameter("mixing", initial);
  if (options.qk_norm()) {
    q_norm = register_parameter("q_norm", torch::ones({dim}));
    k_norm = register_parameter("k_norm", torch::ones({dim}));
  }
}

at::Tensor MultiHeadLinearAttentionImpl::forward(const at::Tensor& x) {
  const std::int64_t dim = options.dim(), heads = options.heads();
  if (x.dim() != 3 || x.size(2) != dim) {
    throw Error("x has shape " + c10::str(x.sizes()) + "; it must be [batch, tokens, " + std::to_string(dim) + "]");
  }
  // A causal layer takes any length up to the one its mixing matrix was made for.
  const bool causal = options.masking() != Masking::none;
  const Partition partition =
      causal ? Partition::line(x.size(1), options.partition().block_capacity()) : options.partition();
  const std::vector<at::Tensor> parts = qkv->forward(x).chunk(3, -1);
  const auto split = [&](const at::Tensor& part) { return part.unflatten(-1, {heads, dim / heads}); };
  const auto normed = [&](const at::Tensor& part, const at::Tensor& gain) {
    return options.qk_norm() ? at::rms_norm(part, {dim}, gain) : part;
  };
  const at::Tensor o =
      attention(split(normed(parts[0], q_norm)), split(normed(parts[1], k_norm)), split(parts[2]), mixing,
                {.partition = partition,
                 .feature_map = options.feature_map(),
                 .normalizer = options.normalizer(),
                 .masking = options.masking(),
                 .scale = options.scale(),
                 .eps = options.eps(),
                 .feature_eps = options.feature_eps()});
  return proj->forward(o.flatten(2));
}

void MultiHeadLinearAttentionImpl::project_(bool normalize_rows) { project_mixing_(mixing, normalize_rows); }

}  // namespace nn
}  // namespace mhla
