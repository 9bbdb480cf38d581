// The fused operators without torch: poisoned memory, derivatives, identities, threads, refusals.
#include "mhla/fused.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "api/operator_case.hpp"
#include "support/expect_error.hpp"

namespace mhla::fused {
namespace {

using test::PoisonedWorkspace;
using test::TokenTensor;

std::vector<double> random_values(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(count);
  for (double& value : values) value = normal(engine);
  return values;
}

TokenTensor random_tokens(DType dtype, std::int64_t b, std::int64_t n, std::int64_t h, std::int64_t d, unsigned seed) {
  TokenTensor tensor(dtype, b, n, h, d, 3);
  const std::vector<double> values = random_values(static_cast<std::size_t>(tensor.elements()), seed);
  std::size_t next = 0;
  tensor.fill([&] { return values[next++]; });
  return tensor;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

constexpr std::int64_t kBatch = 2, kTokens = 6, kHeads = 3, kDim = 8, kWidth = kHeads * kDim;

// One call in double with everything given. `parameters` are all inputs behind each other, `outputs` all outputs;
// gradient() is that of dot(outputs, d_outputs).
struct Case {
  const char* name;
  std::size_t parameters;
  std::function<std::vector<double>(const std::vector<double>&)> outputs;
  std::function<std::vector<double>(const std::vector<double>&, const std::vector<double>& d_outputs)> gradient;
};

TokenTensor tokens_of(const std::vector<double>& values, std::size_t first, std::int64_t heads, std::int64_t dim) {
  TokenTensor tensor(DType::f64, kBatch, kTokens, heads, dim, 1);
  tensor.fill([&] { return values[first++]; });
  return tensor;
}

void append(std::vector<double>& all, const std::vector<double>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

constexpr auto kAll = static_cast<std::size_t>(kBatch * kTokens * kWidth);

RotaryFeatures rotary_problem(NormScope norm) {
  RotaryFeatures p{.dtype = DType::f64,
                   .batch = kBatch,
                   .tokens = kTokens,
                   .heads = kHeads,
                   .dim = kDim,
                   .norm = norm,
                   .feature_map = FeatureMap::elu_plus_one,
                   .feature_eps = 0.1};
  p.rotary = {.layout = RotaryLayout::adjacent, .axes = 2, .sizes = {2, 3}, .pairs = {2, 1}};
  return p;
}

struct Tables {
  std::vector<double> cos, sin;
  explicit Tables(const Rotary& rotary) : cos(static_cast<std::size_t>(rotary.table_elements())), sin(cos.size()) {
    rotary_table(rotary, 100.0, 1, DType::f64, cos.data(), sin.data());
  }
};

Case rotary_case(NormScope norm) {
  const auto width = static_cast<std::size_t>(norm == NormScope::channels ? kWidth : kDim);
  const RotaryFeatures p = rotary_problem(norm);
  const auto inputs = [p](const TokenTensor& x, const double* weight, const Tables& tables) {
    return RotaryFeatures::Inputs{
        .x = x.view(), .weight = {weight, DType::f64}, .cos = tables.cos.data(), .sin = tables.sin.data()};
  };
  return {"rotary_features", kAll + width,
          [=](const std::vector<double>& in) {
            const Tables tables(p.rotary);
            const TokenTensor x = tokens_of(in, 0, kHeads, kDim);
            TokenTensor y(DType::f64, kBatch, kTokens, kHeads, kDim), plain = y;
            forward(p, {.in = inputs(x, in.data() + kAll, tables), .y = y.view(), .plain = plain.view(), .run = {}});
            std::vector<double> out = y.values();
            append(out, plain.values());
            return out;
          },
          [=](const std::vector<double>& in, const std::vector<double>& d) {
            const Tables tables(p.rotary);
            const TokenTensor x = tokens_of(in, 0, kHeads, kDim), d_y = tokens_of(d, 0, kHeads, kDim),
                              d_plain = tokens_of(d, kAll, kHeads, kDim);
            TokenTensor d_x(DType::f64, kBatch, kTokens, kHeads, kDim, 2);
            std::vector<double> d_weight(width, std::nan(""));
            const PoisonedWorkspace workspace(backward_workspace(p));
            backward(p, {.in = inputs(x, in.data() + kAll, tables),
                         .d_y = d_y.view(),
                         .d_plain = d_plain.view(),
                         .d_x = d_x.view(),
                         .d_weight = {d_weight.data(), DType::f64},
                         .run = {workspace.data(), workspace.bytes()}});
            std::vector<double> out = d_x.values();
            append(out, d_weight);
            return out;
          }};
}

Case gated_case(NormScope norm) {
  const auto width = static_cast<std::size_t>(norm == NormScope::channels ? kWidth : kDim);
  const GatedNorm p{
      .dtype = DType::f64, .batch = kBatch, .tokens = kTokens, .heads = kHeads, .dim = kDim, .norm = norm, .eps = 0.1};
  return {"gated_norm", 2 * kAll + width,
          [=](const std::vector<double>& in) {
            const TokenTensor x = tokens_of(in, 0, kHeads, kDim), gate = tokens_of(in, kAll, kHeads, kDim);
            TokenTensor y(DType::f64, kBatch, kTokens, kHeads, kDim, 2);
            forward(p, {.in = {x.view(), {in.data() + 2 * kAll, DType::f64}, gate.view()}, .y = y.view(), .run = {}});
            return y.values();
          },
          [=](const std::vector<double>& in, const std::vector<double>& d) {
            const TokenTensor x = tokens_of(in, 0, kHeads, kDim), gate = tokens_of(in, kAll, kHeads, kDim),
                              d_y = tokens_of(d, 0, kHeads, kDim);
            TokenTensor d_x(DType::f64, kBatch, kTokens, kHeads, kDim), d_gate = d_x;
            std::vector<double> d_weight(width, std::nan(""));
            const PoisonedWorkspace workspace(backward_workspace(p));
            backward(p, {.in = {x.view(), {in.data() + 2 * kAll, DType::f64}, gate.view()},
                         .d_y = d_y.view(),
                         .d_x = d_x.view(),
                         .d_weight = {d_weight.data(), DType::f64},
                         .d_gate = d_gate.view(),
                         .run = {workspace.data(), workspace.bytes()}});
            std::vector<double> out = d_x.values();
            append(out, d_gate.values());
            append(out, d_weight);
            return out;
          }};
}

Case modulate_case(Modulation modulation) {
  const bool per_token = modulation == Modulation::per_token;
  const auto rows = static_cast<std::size_t>(kBatch * (per_token ? kTokens : 1) * kWidth);
  const std::int64_t batch_stride = per_token ? kTokens * kWidth : kWidth, token_stride = per_token ? kWidth : 0;
  const Modulate p{.dtype = DType::f64,
                   .batch = kBatch,
                   .tokens = kTokens,
                   .channels = kWidth,
                   .eps = 0.1,
                   .modulation = modulation};
  const auto inputs = [=](const TokenTensor& x, const double* rest) {
    return Modulate::Inputs{.x = x.view(),
                            .weight = {rest + 2 * rows, DType::f64},
                            .bias = {rest + 2 * rows + kWidth, DType::f64},
                            .scale = {rest, DType::f64, batch_stride, token_stride},
                            .shift = {rest + rows, DType::f64, batch_stride, token_stride}};
  };
  return {"modulate", kAll + 2 * rows + 2 * kWidth,
          [=](const std::vector<double>& in) {
            const TokenTensor x = tokens_of(in, 0, 1, kWidth);
            TokenTensor y(DType::f64, kBatch, kTokens, 1, kWidth, 2);
            forward(p, {.in = inputs(x, in.data() + kAll), .y = y.view(), .run = {}});
            return y.values();
          },
          [=](const std::vector<double>& in, const std::vector<double>& d) {
            const TokenTensor x = tokens_of(in, 0, 1, kWidth), d_y = tokens_of(d, 0, 1, kWidth);
            TokenTensor d_x(DType::f64, kBatch, kTokens, 1, kWidth, 2);
            std::vector<double> rest(2 * rows + 2 * kWidth, std::nan(""));
            const PoisonedWorkspace workspace(backward_workspace(p));
            backward(p, {.in = inputs(x, in.data() + kAll),
                         .d_y = d_y.view(),
                         .d_x = d_x.view(),
                         .d_weight = {rest.data() + 2 * rows, DType::f64},
                         .d_bias = {rest.data() + 2 * rows + kWidth, DType::f64},
                         .d_scale = {rest.data(), DType::f64, batch_stride, token_stride},
                         .d_shift = {rest.data() + rows, DType::f64, batch_stride, token_stride},
                         .run = {workspace.data(), workspace.bytes()}});
            std::vector<double> out = d_x.values();
            append(out, rest);
            return out;
          }};
}

std::vector<Case> all_cases() {
  return {rotary_case(NormScope::head),    rotary_case(NormScope::channels),     gated_case(NormScope::head),
          gated_case(NormScope::channels), modulate_case(Modulation::per_batch), modulate_case(Modulation::per_token)};
}

TEST(Fused, GradientsAgreeWithFiniteDifferencesInEveryDirection) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    const std::vector<double> at = random_values(c.parameters, 1);
    const std::vector<double> d_outputs = random_values(c.outputs(at).size(), 2);
    const std::vector<double> gradient = c.gradient(at, d_outputs);
    ASSERT_EQ(gradient.size(), c.parameters);
    constexpr double kStep = 1e-6;
    for (std::size_t i = 0; i < c.parameters; ++i) {
      std::vector<double> moved = at;
      moved[i] += kStep;
      const double above = dot(c.outputs(moved), d_outputs);
      moved[i] = at[i] - kStep;
      const double slope = (above - dot(c.outputs(moved), d_outputs)) / (2 * kStep);
      ASSERT_NEAR(gradient[i], slope, 1e-6 * std::max(1.0, std::abs(slope))) << "parameter " << i;
    }
  }
}

TEST(Fused, RotationDependsOnDistanceOnly) {
  RotaryFeatures p{
      .dtype = DType::f64, .batch = 1, .tokens = 20, .heads = 1, .dim = 8, .feature_map = FeatureMap::identity};
  for (const RotaryLayout layout : {RotaryLayout::half, RotaryLayout::adjacent}) {
    p.rotary = {.layout = layout, .axes = 1, .sizes = {20}, .pairs = {4}};
    const Tables tables(p.rotary);
    const std::vector<double> q = random_values(8, 1), k = random_values(8, 2);
    const auto rotated = [&](const std::vector<double>& row) {
      TokenTensor x(DType::f64, 1, 20, 1, 8), y = x;
      std::size_t next = 0;
      x.fill([&] { return row[next++ % 8]; });
      forward(p,
              {.in = {.x = std::as_const(x).view(), .weight = {}, .cos = tables.cos.data(), .sin = tables.sin.data()},
               .y = y.view(),
               .plain = {},
               .run = {}});
      return y.values();
    };
    const std::vector<double> turned_q = rotated(q), turned_k = rotated(k);
    const auto product = [&](std::size_t m, std::size_t n) {
      double sum = 0;
      for (std::size_t d = 0; d < 8; ++d) sum += turned_q[m * 8 + d] * turned_k[n * 8 + d];
      return sum;
    };
    EXPECT_NEAR(product(3, 1), product(19, 17), 1e-12);
    EXPECT_NEAR(product(0, 7), product(12, 19), 1e-12);
    EXPECT_GT(std::abs(product(3, 1) - product(3, 2)), 1e-3);
  }
}

TEST(Fused, NormedRowsHaveTheMomentsTheyShould) {
  const GatedNorm norm{.dtype = DType::f64, .batch = 2, .tokens = 5, .heads = 3, .dim = 16, .eps = 0.0};
  const TokenTensor x = random_tokens(DType::f64, 2, 5, 3, 16, 1);
  TokenTensor y(DType::f64, 2, 5, 3, 16);
  forward(norm, {.in = {.x = x.view(), .weight = {}, .gate = {}}, .y = y.view(), .run = {}});
  const std::vector<double> rms = y.values();
  for (std::size_t row = 0; row < 30; ++row) {
    double squares = 0;
    for (std::size_t i = 0; i < 16; ++i) squares += rms[row * 16 + i] * rms[row * 16 + i];
    EXPECT_NEAR(squares / 16, 1.0, 1e-12);
  }
  const Modulate layer{.dtype = DType::f64, .batch = 2, .tokens = 15, .channels = 16, .eps = 0.0};
  const ConstTensor tokens{x.view().data, 15 * x.row_stride(), x.row_stride(), 0};
  forward(layer, {.in = {.x = tokens, .weight = {}, .bias = {}, .scale = {}, .shift = {}},
                  .y = {y.view().data, 240, 16, 0},
                  .run = {}});
  const std::vector<double> standard = y.values();
  for (std::size_t row = 0; row < 30; ++row) {
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < 16; ++i)
      sum += standard[row * 16 + i], squares += standard[row * 16 + i] * standard[row * 16 + i];
    EXPECT_NEAR(sum, 0.0, 1e-12);
    EXPECT_NEAR(squares / 16, 1.0, 1e-12);
  }
}

TEST(Fused, BitsDoNotDependOnTheNumberOfThreads) {
  const GatedNorm p{.dtype = DType::f32, .batch = 3, .tokens = 300, .heads = 2, .dim = 24};
  const TokenTensor x = random_tokens(DType::f32, 3, 300, 2, 24, 1), gate = random_tokens(DType::f32, 3, 300, 2, 24, 2);
  const std::vector<float> weight(24, 0.7F);
  const auto run = [&](const Parallel& parallel) {
    TokenTensor d_x(DType::f32, 3, 300, 2, 24), d_gate = d_x;
    std::vector<float> d_weight(24, std::nanf(""));
    const PoisonedWorkspace workspace(backward_workspace(p));
    backward(p, {.in = {x.view(), {weight.data(), DType::f32}, gate.view()},
                 .d_y = gate.view(),
                 .d_x = d_x.view(),
                 .d_weight = {d_weight.data(), DType::f32},
                 .d_gate = d_gate.view(),
                 .run = {workspace.data(), workspace.bytes(), &parallel}});
    std::vector<double> out = d_x.values();
    append(out, d_gate.values());
    out.insert(out.end(), d_weight.begin(), d_weight.end());
    return out;
  };
  const std::vector<double> alone = run(serial());
  for (int repetition = 0; repetition < 20; ++repetition) EXPECT_EQ(run(default_parallel()), alone);
}

TEST(Fused, TablesHoldTheAnglesOfEveryAxisInTurn) {
  const Rotary rotary{.layout = RotaryLayout::half, .axes = 2, .sizes = {2, 3}, .pairs = {2, 1}};
  std::vector<float> cos(7), sin(7);
  rotary_table(rotary, 100.0, 5, DType::f32, cos.data(), sin.data());
  const std::vector<double> angles{5, 0.5, 6, 0.6, 5, 6, 7};
  for (std::size_t i = 0; i < angles.size(); ++i) {
    EXPECT_FLOAT_EQ(cos[i], static_cast<float>(std::cos(angles[i])));
    EXPECT_FLOAT_EQ(sin[i], static_cast<float>(std::sin(angles[i])));
  }
}

TEST(Fused, RefuseBadArgumentsByName) {
  const TokenTensor x = random_tokens(DType::f32, 1, 6, 2, 8, 1);
  TokenTensor y(DType::f32, 1, 6, 2, 8);
  const std::vector<double> table(24), wide(16);
  std::vector<float> d_weight(8);
  RotaryFeatures rotary{.batch = 1, .tokens = 6, .heads = 2, .dim = 8};
  rotary.rotary = {.layout = RotaryLayout::half, .axes = 1, .sizes = {6}, .pairs = {4}};
  RotaryFeatures::Forward call{.in = {.x = x.view(), .weight = {}, .cos = table.data(), .sin = table.data()},
                               .y = y.view(),
                               .plain = {},
                               .run = {}};
  const auto refused = [&](const RotaryFeatures& p, const RotaryFeatures::Forward& args,
                           std::initializer_list<std::string_view> mentions) {
    expect_error([&] { forward(p, args); }, mentions);
  };
  RotaryFeatures bad = rotary;
  bad.dim = 0;
  refused(bad, call, {"dim is 0", "at least 1"});
  bad = rotary, bad.tokens = -1;
  refused(bad, call, {"tokens is -1"});
  bad = rotary, bad.norm_eps = -1;
  refused(bad, call, {"norm_eps"});
  bad = rotary, bad.rotary.sizes = {5};
  refused(bad, call, {"rotary.sizes are 5", "6"});
  bad = rotary, bad.rotary.axes = 2, bad.rotary.sizes = {std::int64_t{1} << 62, 8};
  refused(bad, call, {"rotary.sizes are 4611686018427387904 x 8"});
  bad = rotary, bad.rotary.pairs = {5};
  refused(bad, call, {"rotary.pairs are 5", "at most half of dim, 4"});
  bad = rotary, bad.rotary.axes = 4;
  refused(bad, call, {"rotary.axes is 4", "from 0 to 3"});
  RotaryFeatures::Forward spoilt = call;
  spoilt.in.sin = nullptr;
  refused(rotary, spoilt, {"sin is null"});
  spoilt = call, spoilt.y.data = nullptr;
  refused(rotary, spoilt, {"y is null"});
  spoilt = call, spoilt.in.weight = {wide.data(), DType::f32};
  refused(rotary, spoilt, {"weight is given", "norm none"});
  spoilt = call, spoilt.in.table_stride = 3;
  refused(rotary, spoilt, {"table_stride is 3"});

  const GatedNorm norm{.batch = 1, .tokens = 6, .heads = 2, .dim = 8};
  const GatedNorm::Inputs in{.x = x.view(), .weight = {wide.data(), DType::f32}, .gate = {}};
  GatedNorm::Backward backwards{
      .in = in, .d_y = x.view(), .d_x = y.view(), .d_weight = {d_weight.data(), DType::f32}, .d_gate = {}, .run = {}};
  expect_error([&] { backward(norm, backwards); }, {"workspace is null"});
  const PoisonedWorkspace workspace(backward_workspace(norm));
  backwards.run = {workspace.data(), workspace.bytes() - 1};
  expect_error([&] { backward(norm, backwards); }, {"workspace_bytes"});
  backwards.run = {static_cast<std::byte*>(workspace.data()) + 8, workspace.bytes()};
  expect_error([&] { backward(norm, backwards); }, {"workspace is not aligned to 64 bytes"});
  backwards.run = {workspace.data(), workspace.bytes()}, backwards.d_gate = y.view();
  expect_error([&] { backward(norm, backwards); }, {"d_gate is given", "without gate"});
  GatedNorm no_norm = norm;
  no_norm.norm = NormScope::none;
  expect_error([&] { forward(no_norm, {.in = in, .y = y.view(), .run = {}}); }, {"norm is none"});
  GatedNorm::Inputs too_wide = in;
  too_wide.weight = {wide.data(), DType::f64};
  expect_error([&] { forward(norm, {.in = too_wide, .y = y.view(), .run = {}}); }, {"weight is f64", "f32"});

  const Modulate layer{.batch = 1, .tokens = 6, .channels = 16};
  expect_error(
      [&] {
        forward(layer, {.in = {.x = {}, .weight = {}, .bias = {}, .scale = {}, .shift = {}}, .y = {}, .run = {}});
      },
      {"x is null"});
  expect_error([&] { rotary_table(rotary.rotary, -1.0, 0, DType::f32, d_weight.data(), d_weight.data()); },
               {"theta is -1"});
  expect_error([&] { rotary_table(rotary.rotary, 10.0, 0, DType::bf16, d_weight.data(), d_weight.data()); },
               {"dtype is bf16"});
}

}  // namespace
}  // namespace mhla::fused
