// The composed formula, linear and softmax attention in torch operations.
#include "cli/bench/peers.hpp"

#include <fmt/format.h>

namespace mhla::cli::bench {
namespace {

using torch::matmul;

torch::Tensor phi(const torch::Tensor& x, const Options& options) {
  torch::Tensor y;
  switch (options.feature_map) {
    case FeatureMap::identity:
      y = x;
      break;
    case FeatureMap::relu:
      y = x.relu();
      break;
    case FeatureMap::elu_plus_one:
      y = torch::elu(x) + 1;
      break;
    case FeatureMap::exp:
      y = x.exp();
      break;
    case FeatureMap::squared_relu:
      y = x.relu().square();
      break;
  }
  return options.feature_eps == 0.0 ? y : y + options.feature_eps;
}

// sum_b m[i, b] x_b over axis 2 of [B, H, M, ...].
torch::Tensor mix(const torch::Tensor& mixing, const torch::Tensor& x) {
  const auto sizes = x.sizes();
  return matmul(mixing, x.reshape({sizes[0], sizes[1], sizes[2], -1})).reshape(sizes);
}

// Axes of the grid split into (blocks, extent) pairs, then all block axes before all extents.
std::vector<std::int64_t> split_sizes(const torch::Tensor& x, const Partition& partition) {
  std::vector<std::int64_t> sizes = {x.size(0)};
  for (int a = 0; a < partition.axes(); ++a) {
    sizes.push_back(partition.blocks_per_axis()[a]);
    sizes.push_back(partition.extents()[a]);
  }
  sizes.push_back(x.size(2));
  sizes.push_back(x.size(3));
  return sizes;
}

std::vector<std::int64_t> split_order(const Partition& partition) {
  std::vector<std::int64_t> order = {0};
  for (int a = 0; a < partition.axes(); ++a) order.push_back(1 + 2 * a);
  for (int a = 0; a < partition.axes(); ++a) order.push_back(2 + 2 * a);
  order.push_back(1 + 2 * partition.axes());
  order.push_back(2 + 2 * partition.axes());
  return order;
}

void check_equal_blocks(const Partition& partition) {
  if (partition.blocks() * partition.block_capacity() != partition.tokens())
    throw Error(fmt::format("partition is {}; the composed formula needs equal blocks", partition.describe()));
}

// [B, H, M, S, D] in, [B, H, M, S, Dv] out.
torch::Tensor bidirectional(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                            const torch::Tensor& mixing, const Options& options) {
  const torch::Tensor S = matmul(k.transpose(-1, -2), v);
  torch::Tensor o = matmul(q, mix(mixing, S));
  if (options.normalizer == Normalizer::none) return o;
  const torch::Tensor z = k.sum(-2);
  if (options.normalizer == Normalizer::paper) return o / (matmul(q, mix(mixing, z).unsqueeze(-1)) + options.eps);
  const torch::Tensor own = matmul(q, z.unsqueeze(-1)).squeeze(-1);
  return o / (mix(mixing, own) + options.eps).unsqueeze(-1);
}

torch::Tensor token_causal(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                           const torch::Tensor& mixing, const Options& options) {
  const torch::Tensor earlier = mixing.tril(-1);
  const torch::Tensor own = mixing.diagonal().reshape({-1, 1, 1});
  const torch::Tensor scores = matmul(q, k.transpose(-1, -2)).tril() * own;
  torch::Tensor o = matmul(q, mix(earlier, matmul(k.transpose(-1, -2), v))) + matmul(scores, v);
  if (options.normalizer == Normalizer::none) return o;
  return o / (matmul(q, mix(earlier, k.sum(-2)).unsqueeze(-1)) + scores.sum(-1, true) + options.eps);
}

// Leaves torch one implementation of softmax attention while it lives.
class OnlyKernel {
 public:
  explicit OnlyKernel(SoftmaxKernel kernel) {
    if (kernel == SoftmaxKernel::automatic) return;
    allow({kernel == SoftmaxKernel::cudnn, kernel == SoftmaxKernel::flash, kernel == SoftmaxKernel::efficient, false});
  }
  ~OnlyKernel() { allow(before_); }
  OnlyKernel(const OnlyKernel&) = delete;
  OnlyKernel& operator=(const OnlyKernel&) = delete;

 private:
  struct Allowed {
    bool cudnn, flash, efficient, plain;
  };
  static Allowed allowed() {
    const at::Context& context = at::globalContext();
    return {context.userEnabledCuDNNSDP(), context.userEnabledFlashSDP(), context.userEnabledMemEfficientSDP(),
            context.userEnabledMathSDP()};
  }
  static void allow(const Allowed& kernels) {
    at::Context& context = at::globalContext();
    context.setSDPUseCuDNN(kernels.cudnn);
    context.setSDPUseFlash(kernels.flash);
    context.setSDPUseMemEfficient(kernels.efficient);
    context.setSDPUseMath(kernels.plain);
  }

  Allowed before_ = allowed();
};

torch::Tensor leaf(const torch::Tensor& x) { return x.detach().to(torch::kFloat64).requires_grad_(true); }

}  // namespace

torch::Tensor to_block_order(const torch::Tensor& x, const Partition& partition) {
  check_equal_blocks(partition);
  return x.reshape(split_sizes(x, partition)).permute(split_order(partition)).reshape(x.sizes());
}

torch::Tensor from_block_order(const torch::Tensor& x, const Partition& partition) {
  check_equal_blocks(partition);
  const auto sizes = split_sizes(x, partition);
  const auto order = split_order(partition);
  std::vector<std::int64_t> permuted;
  std::vector<std::int64_t> inverse(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    permuted.push_back(sizes[static_cast<std::size_t>(order[i])]);
    inverse[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  return x.reshape(permuted).permute(inverse).reshape(x.sizes());
}

torch::Tensor composed_mhla(const Problem& problem, const Tokens& tokens, TokenOrder order) {
  const Partition& partition = problem.partition;
  const Options& options = problem.options;
  check_equal_blocks(partition);
  const bool permute = order == TokenOrder::raster && !partition.is_line();
  const auto blocks = [&](const torch::Tensor& x) {
    const torch::Tensor ordered = permute ? to_block_order(x, partition) : x;
    return ordered.reshape({x.size(0), partition.blocks(), partition.block_capacity(), x.size(2), x.size(3)})
        .permute({0, 3, 1, 2, 4});
  };
  torch::Tensor q = phi(blocks(tokens.q), options);
  if (options.scale != 1.0) q = q * options.scale;
  const torch::Tensor k = phi(blocks(tokens.k), options);
  const torch::Tensor v = blocks(tokens.v);
  const torch::Tensor mixing = tokens.mixing.to(q.scalar_type());
  torch::Tensor o;
  switch (problem.options.masking) {
    case Masking::none:
      o = bidirectional(q, k, v, mixing, options);
      break;
    case Masking::block_causal:
      o = bidirectional(q, k, v, mixing.tril(), options);
      break;
    case Masking::token_causal:
      o = token_causal(q, k, v, mixing, options);
      break;
  }
  o = o.permute({0, 2, 3, 1, 4}).reshape({tokens.q.size(0), partition.tokens(), tokens.q.size(2), tokens.v.size(3)});
  return permute ? from_block_order(o, partition) : o;
}

torch::Tensor linear_attention(const Tokens& tokens, Normalizer normalizer, bool causal, std::int64_t chunk) {
  constexpr double kEps = 1e-6;
  const auto heads_first = [&](const torch::Tensor& x) {
    return causal ? x.reshape({x.size(0), x.size(1) / chunk, chunk, x.size(2), x.size(3)}).permute({0, 3, 1, 2, 4})
                  : x.transpose(1, 2);
  };
  const torch::Tensor q = heads_first(tokens.q).relu();
  const torch::Tensor k = heads_first(tokens.k).relu();
  const torch::Tensor v = heads_first(tokens.v);
  const torch::Tensor S = matmul(k.transpose(-1, -2), v);
  torch::Tensor o;
  if (causal) {
    o = matmul(q, S.cumsum(2) - S) + matmul(matmul(q, k.transpose(-1, -2)).tril(), v);
    return o.permute({0, 2, 3, 1, 4}).reshape({tokens.q.size(0), tokens.q.size(1), tokens.q.size(2), tokens.v.size(3)});
  }
  o = matmul(q, S);
  if (normalizer != Normalizer::none) o = o / (matmul(q, k.sum(-2).unsqueeze(-1)) + kEps);
  return o.transpose(1, 2).contiguous();
}

torch::Tensor softmax_attention(const Tokens& tokens, bool causal, SoftmaxKernel kernel) {
  const OnlyKernel only(kernel);
  const torch::Tensor v = tokens.v.slice(3, 0, tokens.q.size(3));
  return torch::scaled_dot_product_attention(tokens.q.transpose(1, 2), tokens.k.transpose(1, 2), v.transpose(1, 2), {},
                                             0.0, causal)
      .transpose(1, 2);
}

Results composed_truth(const Problem& problem, const Tokens& tokens, const torch::Tensor& d_o) {
  Problem one = problem;
  one.dtype = DType::f64;
  one.heads = one.kv_heads = 1;
  Results truth;
  const auto f64 = tokens.q.options().dtype(torch::kFloat64);
  truth.o = torch::empty({problem.batch, problem.partition.tokens(), problem.heads, problem.value_dim}, f64);
  if (d_o.defined()) {
    truth.d_q = torch::empty(tokens.q.sizes(), f64);
    truth.d_k = torch::empty(tokens.k.sizes(), f64);
    truth.d_v = torch::empty(tokens.v.sizes(), f64);
    truth.d_mixing = torch::zeros(tokens.mixing.sizes(), f64);
  }
  for (std::int64_t h = 0; h < problem.heads; ++h) {
    const auto part = [&](const torch::Tensor& x) { return x.narrow(2, h, 1); };
    torch::AutoGradMode with_gradients(d_o.defined());
    const Tokens single = {leaf(part(tokens.q)), leaf(part(tokens.k)), leaf(part(tokens.v)), leaf(tokens.mixing)};
    const torch::Tensor o = composed_mhla(one, single, TokenOrder::raster);
    part(truth.o).copy_(o.detach());
    if (!d_o.defined()) continue;
    const auto gradients =
        torch::autograd::grad({o}, {single.q, single.k, single.v, single.mixing}, {part(d_o).to(torch::kFloat64)});
    part(truth.d_q).copy_(gradients[0]);
    part(truth.d_k).copy_(gradients[1]);
    part(truth.d_v).copy_(gradients[2]);
    truth.d_mixing += gradients[3];
  }
  return truth;
}

}  // namespace mhla::cli::bench
