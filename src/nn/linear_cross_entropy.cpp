// One piece of the tokens after the other, each with its share of the gradients.
#include "nn/linear_cross_entropy.hpp"

#include <ATen/autocast_mode.h>

#include <algorithm>

#include "mhla/layers.hpp"
#include "mhla/types.hpp"
#include "nn/fused.hpp"

namespace mhla::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 25;

using cuda::layers::CrossEntropy;

CrossEntropy problem_of(const at::Tensor& logits, std::int64_t ignored) {
  return {
      .rows = logits.size(0), .words = logits.size(1), .ignored = ignored, .dtype = fused_dtype(logits.scalar_type())};
}

// The sum of the losses of some tokens, by one kernel; logits become `share` times their gradient, where it is wanted.
at::Tensor fused_loss_of(const at::Tensor& logits, const at::Tensor& labels, std::int64_t ignored,
                         const at::Tensor& share, bool gradient_wanted) {
  dispatch::TorchExecution execution(logits);
  const at::Tensor loss = at::empty({logits.size(0)}, share.options());
  cuda::layers::run(problem_of(logits, ignored),
                    {.logits = logits.mutable_data_ptr(),
                     .labels = labels.const_data_ptr<std::int64_t>(),
                     .share = gradient_wanted ? share.const_data_ptr<float>() : nullptr,
                     .loss = loss.mutable_data_ptr<float>()},
                    execution.run(0).stream);
  return loss.sum();
}

struct LossPieces {
  at::Tensor loss, d_hidden, d_weight;
};

// hidden: [N, C], in the type of products; gradients where they are wanted.
LossPieces loss_in_pieces(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                          const LinearCrossEntropyOptions& options, bool d_hidden_wanted, bool d_weight_wanted) {
  const auto sums = hidden.options().dtype(hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const std::int64_t tokens = hidden.size(0), words = weight.size(0);
  const std::int64_t chunk =
      options.chunk > 0 ? options.chunk : std::max<std::int64_t>(1, kLogitsAtOnce / std::max<std::int64_t>(1, words));
  const at::Tensor counted = labels != options.ignored;
  const at::Tensor share = options.reduction == LossReduction::mean
                               ? counted.sum().clamp_min(1).to(sums.dtype()).reciprocal()
                               : at::ones({}, sums);
  LossPieces all{at::zeros({}, sums), {}, {}};
  if (d_hidden_wanted) all.d_hidden = at::empty_like(hidden);
  if (d_weight_wanted) all.d_weight = at::zeros(weight.sizes(), sums);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk) {
    const std::int64_t count = std::min(chunk, tokens - begin);
    const at::Tensor x = hidden.narrow(0, begin, count), counts = counted.narrow(0, begin, count).unsqueeze(1);
    const at::Tensor products = at::mm(x, weight.t());
    const auto add_gradients = [&](const at::Tensor& d_logits) {
      if (d_hidden_wanted) all.d_hidden.narrow(0, begin, count).copy_(at::mm(d_logits, weight));
      if (d_weight_wanted) all.d_weight += at::mm(d_logits.t(), x);
    };
    if (fused_input(products) && problem_of(products, options.ignored).supported()) {
      all.loss += share * fused_loss_of(products, labels.narrow(0, begin, count).contiguous(), options.ignored, share,
                                        d_hidden_wanted || d_weight_wanted);
      add_gradients(products);
      continue;
    }
    const at::Tensor label = labels.narrow(0, begin, count).unsqueeze(1).masked_fill(counts.logical_not(), 0);
    at::Tensor logits = products.to(sums.dtype());
    const at::Tensor log_sum = logits.logsumexp(1, true);
    all.loss += (log_sum - logits.gather(1, label)).masked_fill(counts.logical_not(), 0.0).sum() * share;
    if (!d_hidden_wanted && !d_weight_wanted) continue;
    logits.sub_(log_sum).exp_();  // softmax
    logits.scatter_add_(1, label, at::full_like(log_sum, -1.0));
    logits.mul_(counts * share);
    add_gradients(logits.to(hidden.scalar_type()));
  }
  return all;
}

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden, const at::Tensor& weight,
                            const at::Tensor& labels, at::ScalarType products, const LinearCrossEntropyOptions& options,
                            bool differentiated) {
    LossPieces pieces =
        loss_in_pieces(hidden.to(products), weight.to(products), labels, options,
                       differentiated && hidden.requires_grad(), differentiated && weight.requires_grad());
    const auto like = [](const at::Tensor& gradient, const at::Tensor& x) {
      return gradient.defined() ? gradient.to(x.scalar_type()) : gradient;
    };
    context->save_for_backward({like(pieces.d_hidden, hidden), like(pieces.d_weight, weight)});
    return pieces.loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    if (at::GradMode::is_enabled())
      throw Error("linear_cross_entropy can be differentiated once; create_graph must be false");
    const variable_list saved = context->get_saved_variables();
    const auto scaled = [&](const at::Tensor& gradient) {
      return gradient.defined() ? gradient * d_outputs[0].to(gradient.scalar_type()) : at::Tensor();
    };
    return {scaled(saved[0]), scaled(saved[1]), {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                const LinearCrossEntropyOptions& options) {
  const std::string shapes = "hidden is " + c10::str(hidden.sizes()) + ", weight " + c10::str(weight.sizes()) +
                             " and labels " + c10::str(labels.sizes());
  if (hidden.dim() < 1 || weight.dim() != 2 || weight.size(0) < 1 || hidden.size(-1) != weight.size(1) ||
      labels.sizes() != hidden.sizes().slice(0, static_cast<std::size_t>(hidden.dim() - 1)))
    throw Error(shapes + "; they must be [.., C], [V, C] and [..]");
  if (labels.scalar_type() != at::kLong)
    throw Error("labels are of " + std::string(c10::toString(labels.scalar_type())) + "; they must be int64");
  if (labels.is_cpu() && labels.numel() > 0) {
    const at::Tensor wrong = (labels < 0).logical_or(labels >= weight.size(0)).logical_and(labels != options.ignored);
    if (wrong.any().item<bool>())
      throw Error("labels hold one that is neither 0 to " + std::to_string(weight.size(0) - 1) + " nor " +
                  std::to_string(options.ignored));
  }
  const at::Tensor rows = hidden.reshape({-1, hidden.size(-1)});
  return LinearCrossEntropyFunction::apply(rows, weight, labels.reshape(-1), product_type(hidden), options,
                                           at::GradMode::is_enabled());
}

}  // namespace mhla::nn
