// Causal layers against their formulas in double: every kind, feature map and option.
#include <gtest/gtest.h>

#include <cmath>

#include "nn/causal/attention.hpp"
#include "nn/causal/mixing.hpp"
#include "support/expect_error.hpp"
#include "support/relative_error.hpp"

namespace mhla::nn {
namespace {

using mhla::testing::relative_error;

CausalOptions small_causal(CausalKind kind) {
  CausalOptions options{.kind = kind, .dim = 12, .heads = 4, .kv_heads = 2, .key_width = 6, .value_width = 5};
  if (kind == CausalKind::softmax) options.value_width = 6;
  options.block_size = 4;
  if (kind == CausalKind::mhla) options.mixing = torch::rand({5, 5});
  return options;
}

// One sequence, one layer, in double, from the definitions.
class CausalFormula {
 public:
  CausalFormula(const CausalAttention& layer, const at::Tensor& x) : options_(layer.options), x_(x) {
    for (const auto& item : layer.named_parameters()) weights_[item.key()] = item.value().detach().to(at::kDouble);
  }

  at::Tensor output() {  // x: [T, C]
    const std::int64_t group = options_.heads / options_.kv_heads;
    const at::Tensor q = projected("q"), k = projected("k"), v = projected("v");
    std::vector<at::Tensor> outputs;
    for (std::int64_t head = 0; head < options_.heads; ++head)
      outputs.push_back(head_output(of_head(q, head, options_.key_width), of_head(k, head / group, options_.key_width),
                                    of_head(v, head / group, options_.value_width), head));
    return at::cat(outputs, 1).matmul(w("o_proj.weight").t());
  }

 private:
  at::Tensor w(const std::string& name) { return weights_.at(name); }
  at::Tensor linear(const std::string& name, const at::Tensor& x) {
    const at::Tensor y = x.matmul(w(name + ".weight").t());
    return weights_.contains(name + ".bias") ? y + w(name + ".bias") : y;
  }
  static at::Tensor of_head(const at::Tensor& x, std::int64_t head, std::int64_t width) {
    return x.narrow(1, head * width, width);
  }

  at::Tensor projected(const std::string& name) {
    const at::Tensor y = linear(name + "_proj", x_);
    const auto found = weights_.find(name + "_conv1d.weight");
    if (found == weights_.end()) return y;
    at::Tensor sum = at::zeros_like(y);
    for (std::int64_t t = 0; t < y.size(0); ++t)
      for (std::int64_t j = 0; j < 4 && j <= t; ++j) sum[t] += found->second.squeeze(1).select(1, 3 - j) * y[t - j];
    return at::silu(sum);
  }

  at::Tensor mapped(const std::string& name, const at::Tensor& x) {
    switch (options_.feature_map) {
      case CausalMap::relu:
        return at::relu(x);
      case CausalMap::elu:
        return at::elu(x) + 1.0;
      case CausalMap::hedgehog: {
        const at::Tensor y = linear(name + ".layer", x);
        return at::softmax(at::cat({2.0 * y, -2.0 * y}, 1), 1);
      }
      case CausalMap::t2r:
        return at::relu(linear(name + ".layer", x));
      case CausalMap::elementwise_product:
        return linear(name + ".layer1", x) * linear(name + ".layer2", x);
      case CausalMap::dpfp: {
        const at::Tensor u = at::cat({at::relu(x), -at::relu(x)}, 1);
        std::vector<at::Tensor> parts;
        for (std::int64_t j = 1; j <= 4; ++j) {
          const std::int64_t kept = u.size(1) - j;
          parts.push_back(u * at::cat({u.slice(1, kept), u.slice(1, 0, kept)}, 1));
        }
        return at::cat(parts, 1);
      }
      default:
        return x;
    }
  }

  at::Tensor rotated(const at::Tensor& x) {
    const std::int64_t half = options_.key_width / 2;
    at::Tensor y = x.clone();
    for (std::int64_t t = 0; t < x.size(0); ++t)
      for (std::int64_t j = 0; j < half; ++j) {
        const double angle = static_cast<double>(t) * std::pow(options_.rotary_base, -2.0 * static_cast<double>(j) /
                                                                                         static_cast<double>(2 * half));
        y[t][j] = x[t][j] * std::cos(angle) - x[t][j + half] * std::sin(angle);
        y[t][j + half] = x[t][j] * std::sin(angle) + x[t][j + half] * std::cos(angle);
      }
    return y;
  }

  at::Tensor head_output(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t head) {
    if (options_.kind == CausalKind::softmax) {
      const at::Tensor scores = rotated(q).matmul(rotated(k).t()) / std::sqrt(static_cast<double>(q.size(1)));
      const at::Tensor later = at::ones_like(scores).triu(1).to(at::kBool);
      return at::softmax(scores.masked_fill(later, -INFINITY), 1).matmul(v);
    }
    const at::Tensor o = options_.kind == CausalKind::gla ? recurrence(q, k, v, head) : weighted(q, k, v);
    const bool gated = options_.output_gate;
    const at::Tensor normed = o * at::rsqrt(o.square().mean(1, true) + options_.norm_eps) *
                              w(gated ? "g_norm_swish_gate.weight" : "g_norm.weight");
    return gated ? normed * at::silu(of_head(linear("g_proj", x_), head, options_.value_width)) : normed;
  }

  at::Tensor weighted(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    const at::Tensor features = rotated(mapped("feature_map_q", q)), keys = rotated(mapped("feature_map_k", k));
    at::Tensor weights = features.matmul(keys.t()).tril() / std::sqrt(static_cast<double>(features.size(1)));
    if (options_.kind == CausalKind::mhla) {
      const at::Tensor blocks = at::arange(x_.size(0)).floor_divide(options_.block_size);
      weights = weights * w("mixing_matrix").flatten(1).index_select(0, blocks).index_select(1, blocks);
    }
    return weights.matmul(v);
  }

  at::Tensor recurrence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::int64_t head) {
    const at::Tensor keep = at::pow(at::sigmoid(linear("gk_proj.1", linear("gk_proj.0", x_))), 1.0 / 16.0);
    const at::Tensor decay = of_head(keep, head / (options_.heads / options_.kv_heads), options_.key_width);
    at::Tensor state = at::zeros({q.size(1), v.size(1)}, at::kDouble);
    std::vector<at::Tensor> outputs;
    for (std::int64_t t = 0; t < q.size(0); ++t) {
      state = decay[t].unsqueeze(1) * state + at::outer(k[t], v[t]);
      outputs.push_back(q[t].matmul(state) / std::sqrt(static_cast<double>(q.size(1))));
    }
    return at::stack(outputs);
  }

  CausalOptions options_;
  at::Tensor x_;
  std::map<std::string, at::Tensor> weights_;
};

void expect_formula(const CausalOptions& options, const std::string& what) {
  torch::manual_seed(1);
  const auto layer = make_causal_attention(options);
  const torch::NoGradGuard no_gradient;
  for (at::Tensor& parameter : layer->parameters()) parameter.add_(torch::rand_like(parameter) * 0.5);
  layer->to(at::kDouble);
  const at::Tensor x = torch::randn({2, 19, options.dim}, at::kDouble);
  const at::Tensor found = layer->forward(x, Line(19, x.device()));
  EXPECT_LT(relative_error(found[1], CausalFormula(*layer, x[1]).output()), 1e-8) << what;
}

TEST(CausalAttention, IsItsFormula) {
  for (const char* kind : {"softmax", "linear", "gla", "mhla"}) {
    CausalOptions options = small_causal(parse_causal_kind(kind));
    expect_formula(options, kind);
    options.short_convolution = true;
    options.output_gate = false;
    options.kv_heads = 4;
    options.rotary_base = 50.0;
    expect_formula(options, std::string(kind) + " with other options");
  }
}

TEST(CausalAttention, HasEveryFeatureMap) {
  for (const char* map : {"relu", "identity", "elu", "hedgehog", "t2r", "elementwise_product", "dpfp"}) {
    CausalOptions options = small_causal(CausalKind::mhla);
    options.feature_map = parse_causal_map(map);
    expect_formula(options, map);
  }
  expect_error([] { parse_causal_map("cosine"); }, {"feature_map is \"cosine\"", "hedgehog"});
  expect_error([] { parse_causal_kind("cosine"); }, {"attention is \"cosine\"", "gla"});
}

TEST(CausalMixing, MoreBlocksAreThoseOfTheOperatorsPolicies) {
  torch::manual_seed(2);
  const at::Tensor matrix = torch::rand({3, 3}, at::kDouble).tril();
  const std::span<const double> values(matrix.const_data_ptr<double>(), 9);
  for (const BeyondTrained beyond : {BeyondTrained::clamp, BeyondTrained::running_mean, BeyondTrained::interpolate})
    for (const std::int64_t blocks : {4, 7}) {
      const auto expected = extend_causal_mixing(values, 3, blocks, beyond);
      EXPECT_TRUE(at::allclose(extended_mixing(matrix, blocks, beyond).tril(),
                               torch::tensor(expected, at::kDouble).view({blocks, blocks}).tril()))
          << name(beyond) << " " << blocks;
    }
  EXPECT_TRUE(extended_mixing(matrix, 2, BeyondTrained::error).is_same(matrix));
  expect_error([&] { extended_mixing(matrix, 4, BeyondTrained::error); }, {"4 blocks", "trained for 3"});
}

TEST(CausalMixing, GradientsReachTheTrainedEntries) {
  torch::manual_seed(3);
  const at::Tensor matrix = torch::rand({3, 3}, at::kDouble), weights = torch::rand({6, 6}, at::kDouble).tril();
  for (const BeyondTrained beyond : {BeyondTrained::clamp, BeyondTrained::running_mean, BeyondTrained::interpolate}) {
    const auto loss = [&](const at::Tensor& m) { return (extended_mixing(m, 6, beyond) * weights).sum(); };
    const at::Tensor leaf = matrix.clone().requires_grad_(), direction = torch::randn_like(matrix);
    loss(leaf).backward();
    const double slope = (leaf.grad() * direction).sum().item<double>(), step = 1e-6;
    const double found =
        (loss(matrix + step * direction) - loss(matrix - step * direction)).item<double>() / (2.0 * step);
    EXPECT_NEAR(found, slope, 1e-6) << name(beyond);
  }
}

}  // namespace
}  // namespace mhla::nn
