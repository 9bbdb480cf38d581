// Gated linear attention against its recurrence in double: values, gradients, states, decays of any strength.
#include "nn/gla.hpp"

#include <ATen/autocast_mode.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/expect_error.hpp"
#include "support/relative_error.hpp"

namespace mhla::nn {
namespace {

using mhla::testing::relative_error;
using Tensors = std::vector<at::Tensor>;

// One token after the other, as the definition says.
GlaResult recurrence(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& log_decay,
                     at::Tensor state) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  Tensors outputs;
  for (std::int64_t t = 0; t < q.size(1); ++t) {
    state = log_decay.select(1, t).exp().unsqueeze(3) * state +
            k.select(1, t).unsqueeze(3) * v.select(1, t).unsqueeze(2);  // [B, H, Dk, Dv]
    outputs.push_back(scale * (q.select(1, t).unsqueeze(3) * state).sum(2));
  }
  return {at::stack(outputs, 1), state};
}

struct Case {
  at::Tensor q, k, v, log_decay, state;

  Tensors leaves(const at::TensorOptions& options) const {
    Tensors result;
    for (const at::Tensor& tensor : {q, k, v, log_decay, state})
      result.push_back(tensor.to(options).detach().requires_grad_());
    return result;
  }
};

// Decays down to exp(-strength), most of them much weaker.
Case made(std::int64_t tokens, double strength) {
  constexpr std::int64_t kBatch = 2, kHeads = 3, kKey = 5, kValue = 7;
  const auto random = [](at::IntArrayRef sizes) { return torch::randn(sizes, at::kDouble); };
  return {random({kBatch, tokens, kHeads, kKey}), random({kBatch, tokens, kHeads, kKey}),
          random({kBatch, tokens, kHeads, kValue}),
          -strength * torch::rand({kBatch, tokens, kHeads, kKey}, at::kDouble).pow(3.0),
          random({kBatch, kHeads, kKey, kValue})};
}

// Output, state, and gradients of both with respect to everything that was given.
template <typename Call>
Tensors everything(const Call& call, const Tensors& in) {
  const GlaResult result = call(in);
  const auto weighted = [](const at::Tensor& x) {
    return (x.to(at::kDouble) * at::arange(x.numel(), x.options().dtype(at::kDouble)).sin().view(x.sizes())).sum();
  };
  Tensors all = {result.o, result.state};
  for (const at::Tensor& gradient : torch::autograd::grad({weighted(result.o) + weighted(result.state)}, in))
    all.push_back(gradient);
  return all;
}
Tensors by_recurrence(const Case& c) {
  return everything([](const Tensors& in) { return recurrence(in[0], in[1], in[2], in[3], in[4]); },
                    c.leaves(at::kDouble));
}
Tensors by_chunks(const Case& c, std::int64_t chunk, const at::TensorOptions& options) {
  return everything(
      [&](const Tensors& in) { return gla(in[0], in[1], in[2], in[3], {.initial_state = in[4], .chunk = chunk}); },
      c.leaves(options));
}

void expect_equal(const Tensors& found, const Tensors& expected, double tolerance, const std::string& what) {
  const std::vector<std::string> names = {"o", "state", "d_q", "d_k", "d_v", "d_log_decay", "d_initial_state"};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_LT(relative_error(found[i].cpu().to(at::kDouble), expected[i]), tolerance) << names[i] << ", " << what;
}

TEST(Gla, IsTheRecurrenceWithItsGradientsForAnyLengthAndChunk) {
  torch::manual_seed(1);
  for (const std::int64_t tokens : {1, 2, 3, 16, 31, 64, 65, 131})
    for (const double strength : {0.3, 20.0}) {
      const Case c = made(tokens, strength);
      const Tensors expected = by_recurrence(c);
      for (const std::int64_t chunk : {1, 4, 16, 64})
        expect_equal(by_chunks(c, chunk, at::kDouble), expected, 1e-12,
                     std::to_string(tokens) + " tokens in chunks of " + std::to_string(chunk));
    }
}

TEST(Gla, StartsFromZeroAndScalesAsAsked) {
  torch::manual_seed(2);
  const Case c = made(21, 1.0);
  const GlaResult expected = recurrence(c.q, c.k, c.v, c.log_decay, at::zeros_like(c.state));
  const GlaResult found = gla(c.q, c.k, c.v, c.log_decay, {.scale = 3.0});
  EXPECT_LT(relative_error(found.o, expected.o * 3.0 * std::sqrt(5.0)), 1e-12);
  EXPECT_LT(relative_error(found.state, expected.state), 1e-12);
}

// Weak decays after strong ones: sums of logarithms would lose the weak ones' digits.
TEST(Gla, KeepsItsDigitsInFloat32WhereDecaysAreStrong) {
  torch::manual_seed(3);
  Case c = made(192, 20.0);
  for (const std::int64_t first : {0, 64, 128}) {
    c.log_decay.narrow(1, first, 40).fill_(-20.0);
    c.log_decay.narrow(1, first + 40, 24).fill_(-0.01);
  }
  for (at::Tensor* const tensor : {&c.q, &c.k, &c.v, &c.log_decay, &c.state}) *tensor = tensor->to(at::kFloat);
  expect_equal(by_chunks(c, 64, at::kFloat), by_recurrence(c), 1e-6, "float32");
}

TEST(Gla, AnInfiniteDecayForgetsEverything) {
  torch::manual_seed(4);
  Case c = made(37, 1.0);
  c.log_decay.fill_(-std::numeric_limits<double>::infinity());
  const Tensors all = by_chunks(c, 64, at::kFloat);
  const at::Tensor alone = (c.q * c.k).sum(3, true) * c.v / std::sqrt(5.0);
  EXPECT_LT(relative_error(all[0].detach().to(at::kDouble), alone), 1e-6);
  for (const at::Tensor& tensor : all) EXPECT_TRUE(tensor.isfinite().all().item<bool>());
}

TEST(Gla, ContinuesFromTheStateItReturned) {
  torch::manual_seed(5);
  const Case c = made(90, 2.0);
  const GlaResult whole = gla(c.q, c.k, c.v, c.log_decay, {.initial_state = c.state});
  for (const std::int64_t border : {0, 1, 17, 64, 90}) {
    const auto call = [&](std::int64_t from, std::int64_t to, const at::Tensor& state) {
      const auto part = [&](const at::Tensor& x) { return x.slice(1, from, to); };
      return gla(part(c.q), part(c.k), part(c.v), part(c.log_decay), {.initial_state = state});
    };
    const GlaResult first = call(0, border, c.state), second = call(border, 90, first.state);
    EXPECT_LT(relative_error(at::cat({first.o, second.o}, 1), whole.o), 1e-12) << border;
    EXPECT_LT(relative_error(second.state, whole.state), 1e-12) << border;
  }
}

TEST(Gla, RoundsHalfPrecisionOnlyAtTheEnds) {
  torch::manual_seed(6);
  const Case c = made(50, 1.0);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor q = c.q.to(type), k = c.k.to(type), v = c.v.to(type), log_decay = c.log_decay.to(at::kFloat);
    const GlaResult exact = gla(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), log_decay);
    at::autocast::set_autocast_dtype(at::kCPU, type);
    for (const bool autocast : {false, true}) {
      at::autocast::set_autocast_enabled(at::kCPU, autocast);
      const GlaResult rounded = gla(q, k, v, log_decay);
      at::autocast::set_autocast_enabled(at::kCPU, false);
      EXPECT_TRUE(at::equal(rounded.o, exact.o.to(type))) << autocast;
      EXPECT_TRUE(at::equal(rounded.state, exact.state)) << autocast;
    }
  }
}

class AllocatedBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*memory*/, std::int64_t bytes, std::size_t /*allocated*/, std::size_t /*reserved*/,
                         c10::Device /*device*/) override {
    total += std::max<std::int64_t>(bytes, 0);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::int64_t total = 0;
};

TEST(Gla, TakesMemoryInProportionToTheTokens) {
  const auto bytes = [](std::int64_t tokens) {
    const Case c = made(tokens, 1.0);
    const auto allocated = std::make_shared<AllocatedBytes>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, allocated);
    by_chunks(c, 64, at::kFloat);
    return static_cast<double>(allocated->total);
  };
  const double few = bytes(512);
  EXPECT_GT(few, 0.0);
  EXPECT_LT(bytes(8 * 512), 8.5 * few);
}

TEST(Gla, NothingGivesNothing) {
  for (const auto& [batch, tokens] : {std::pair{0, 5}, {2, 0}}) {
    const at::Tensor q = torch::randn({batch, tokens, 3, 4}), v = torch::randn({batch, tokens, 3, 6});
    const GlaResult result = gla(q, q, v, -q.abs());
    EXPECT_EQ(result.o.sizes(), v.sizes());
    EXPECT_EQ(result.state.sizes(), (std::vector<std::int64_t>{batch, 3, 4, 6}));
    EXPECT_EQ(result.state.abs().sum().item<float>(), 0.0F);
  }
}

TEST(Gla, WrongArgumentsAreRefusedByName) {
  const at::Tensor q = torch::randn({2, 8, 3, 4}), v = torch::randn({2, 8, 3, 6});
  expect_error([&] { gla(q[0], q, v, q); }, {"q has shape [8, 3, 4]", "[batch, tokens, heads, width]"});
  expect_error([&] { gla(q, q.slice(1, 1), v, q); }, {"k has shape [2, 7, 3, 4]", "must be [2, 8, 3, 4]"});
  expect_error([&] { gla(q, q, v, q.slice(3, 1)); }, {"log_decay has shape [2, 8, 3, 3]"});
  expect_error([&] { gla(q, q, v.slice(2, 1), q); }, {"v has shape [2, 8, 2, 6]", "must be [2, 8, 3, 6]"});
  expect_error([&] { gla(q, q, v[0], q); }, {"v has shape [8, 3, 6]"});
  expect_error([&] { gla(q, q, v, q, {.initial_state = torch::zeros({2, 3, 4, 5})}); },
               {"initial_state has shape [2, 3, 4, 5]", "must be [2, 3, 4, 6]"});
  for (const std::int64_t chunk : {-64, 0, 48})
    expect_error([&] { gla(q, q, v, q, {.chunk = chunk}); }, {"chunk is " + std::to_string(chunk), "power of two"});
}

TEST(GpuGla, IsTheRecurrenceWithItsGradients) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device: GPU tests not run";
  torch::manual_seed(7);
  for (const std::int64_t tokens : {1, 64, 131, 300})
    for (const double strength : {0.3, 20.0}) {
      Case c = made(tokens, strength);
      for (at::Tensor* const tensor : {&c.q, &c.k, &c.v, &c.log_decay, &c.state}) *tensor = tensor->to(at::kFloat);
      expect_equal(by_chunks(c, 64, at::TensorOptions(at::kCUDA).dtype(at::kFloat)), by_recurrence(c), 1e-5,
                   std::to_string(tokens) + " tokens");
    }
}

}  // namespace
}  // namespace mhla::nn
