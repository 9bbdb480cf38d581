// A mixing matrix per batch row and head: what it is when rows agree, when there is but one row, and what is refused.
// That it matches the reference is in operator_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "api/operator_case.hpp"
#include "support/expect_error.hpp"

namespace mhla::test {
namespace {

struct MatrixForm {
  Partition partition;
  DType dtype;
  std::int64_t batch, heads, dim;
  Masking masking = Masking::none;
  Normalizer normalizer = Normalizer::paper;
  Algorithm algorithm = Algorithm::automatic;
};

// Whole heads on the chip, stages, dense, causal: on a GPU every algorithm that reads the matrix.
const std::vector<MatrixForm>& forms() {
  static const std::vector<MatrixForm> all = {
      {Partition::grid({8, 8}, {2, 2}), DType::f64, 3, 2, 9},
      {Partition::grid({8, 8}, {2, 2}), DType::f64, 3, 2, 9, Masking::none, Normalizer::authors},
      {Partition::line(50, 7), DType::f64, 3, 2, 9, Masking::token_causal},
      {Partition::line(50, 7), DType::f64, 3, 2, 9, Masking::block_causal, Normalizer::none, Algorithm::dense},
      {Partition::line(256, 64), DType::bf16, 30, 6, 64, Masking::none, Normalizer::paper, Algorithm::summary},
      {Partition::grid({16, 16}, {4, 4}), DType::bf16, 5, 4, 64},
      {Partition::grid({16, 16}, {4, 4}), DType::bf16, 5, 4, 32, Masking::none, Normalizer::none, Algorithm::dense},
      {Partition::line(256, 64), DType::f16, 3, 2, 64, Masking::token_causal, Normalizer::none},
      {Partition::line(800, 40), DType::f16, 3, 2, 48},
      {Partition::line(300, 40), DType::f32, 3, 2, 48, Masking::token_causal},
  };
  return all;
}

Problem problem_of(const MatrixForm& form) {
  Problem p;
  p.device = test_device();
  p.dtype = form.dtype;
  p.batch = form.batch;
  p.heads = p.kv_heads = form.heads;
  p.key_dim = p.value_dim = form.dim;
  p.partition = form.partition;
  p.mixing_blocks = form.partition.blocks();
  p.mixing_per_head = p.mixing_per_row = true;
  p.options = {.normalizer = form.normalizer, .masking = form.masking, .algorithm = form.algorithm};
  return p;
}

double tolerance_of(const Problem& p) { return p.dtype == DType::f64 ? 1e-12 : p.dtype == DType::f32 ? 1e-5 : 8e-3; }

// The matrices of all heads for batch row `row`.
StateTensor matrices_of(const Problem& p, const StateTensor& mixing, std::int64_t row) {
  const std::int64_t size = p.heads * p.mixing_blocks * p.mixing_blocks;
  StateTensor out(p.dtype, size);
  for (std::int64_t e = 0; e < size; ++e) out.set(e, mixing.get(row * size + e));
  return out;
}

TokenTensor row_of(const TokenTensor& x, std::int64_t row) {
  TokenTensor out(x.dtype, 1, x.tokens, x.heads, x.dim);
  for (std::int64_t e = 0; e < out.elements(); ++e) out.set(e, x.get(row * out.elements() + e));
  return out;
}

TEST(Operator, EqualMatricesPerRowGiveTheBitsOfMatricesPerHead) {
  unsigned seed = 8100;
  for (const MatrixForm& form : forms()) {
    const Problem p = problem_of(form);
    SCOPED_TRACE(describe(p));
    OperatorCase c(p, seed++);
    OperatorCase per_head = c;
    per_head.problem.mixing_per_row = false;
    per_head.mixing = matrices_of(p, c.mixing, 0);
    const std::int64_t size = per_head.mixing.elements();
    for (std::int64_t e = 0; e < c.mixing.elements(); ++e) c.mixing.set(e, per_head.mixing.get(e % size));
    const TokenTensor o = c.forward().o, expected_o = per_head.forward().o;
    EXPECT_EQ(o.values(), expected_o.values());
    const Gradients got = c.backward(o), want = per_head.backward(o);
    EXPECT_EQ(got.q.values(), want.q.values());
    EXPECT_EQ(got.k.values(), want.k.values());
    EXPECT_EQ(got.v.values(), want.v.values());
    std::vector<double> sum(static_cast<std::size_t>(size));
    for (std::int64_t e = 0; e < c.mixing.elements(); ++e) sum[static_cast<std::size_t>(e % size)] += got.mixing.get(e);
    EXPECT_LE(relative_rms(sum, want.mixing.values()), tolerance_of(p)) << "d_mixing";
  }
}

TEST(Operator, ARowOfABatchReadsItsOwnMatrices) {
  unsigned seed = 8200;
  for (const MatrixForm& form : forms()) {
    const Problem p = problem_of(form);
    SCOPED_TRACE(describe(p));
    const OperatorCase c(p, seed++);
    const TokenTensor o = c.forward().o;
    const Gradients g = c.backward(o);
    for (const std::int64_t row : {std::int64_t{0}, p.batch - 1}) {
      OperatorCase alone;
      alone.problem = p;
      alone.problem.batch = 1;
      alone.problem.mixing_per_row = row == 0;  // [1, H, M, M] and [H, M, M] are the same
      alone.q = row_of(c.q, row), alone.k = row_of(c.k, row), alone.v = row_of(c.v, row);
      alone.d_o = row_of(c.d_o, row);
      alone.mixing = matrices_of(p, c.mixing, row);
      EXPECT_LE(relative_rms(row_of(o, row).values(), alone.forward().o.values()), tolerance_of(p)) << "o";
      const Gradients want = alone.backward(row_of(o, row));
      const double terms = cancelling_terms(alone, row_of(o, row)), of_tokens = terms / std::sqrt(p.key_dim);
      const double tolerance = 4 * tolerance_of(p);
      EXPECT_LE(relative_rms(row_of(g.q, row).values(), want.q.values(), of_tokens), tolerance) << "d_q";
      EXPECT_LE(relative_rms(row_of(g.k, row).values(), want.k.values(), of_tokens), tolerance) << "d_k";
      EXPECT_LE(relative_rms(row_of(g.v, row).values(), want.v.values()), tolerance) << "d_v";
      EXPECT_LE(relative_rms(matrices_of(p, g.mixing, row).values(), want.mixing.values(), terms), tolerance)
          << "d_mixing";
    }
  }
}

TEST(Operator, GroupedHeadsHaveAMatrixPerRowEach) {
  Problem p = problem_of(forms().front());
  p.heads = 4;
  p.kv_heads = 2;
  const OperatorCase c(p, 8300);
  const TokenTensor o = c.reference_forward().o;
  EXPECT_LE(relative_rms(c.forward().o.values(), o.values()), 1e-10);
  EXPECT_LE(relative_rms(c.backward(o).mixing.values(), c.reference_backward(o).mixing.values()), 1e-10);
}

TEST(Operator, GradientsOfMatricesPerRowAreZeroWithoutTokensAndMayBeUnwanted) {
  Problem p = problem_of({Partition::line(0, 7), DType::f32, 3, 2, 9, Masking::token_causal});
  p.mixing_blocks = 4;
  const OperatorCase empty(p, 8400);
  const StateTensor d_mixing = empty.backward(empty.forward().o).mixing;
  EXPECT_EQ(d_mixing.values(), std::vector<double>(static_cast<std::size_t>(3 * 2 * 4 * 4), 0.0));

  p.batch = 0;
  p.partition = Partition::line(14, 7);
  const OperatorCase none(p, 8401);
  EXPECT_EQ(none.backward(none.forward().o).mixing.elements(), 0);

  const Problem whole = problem_of(forms().front());
  OperatorCase c(whole, 8402);
  const TokenTensor o = c.forward().o;
  Gradients g = c.empty_gradients();
  BackwardArgs args = c.backward_args(o, g);
  args.d_mixing = nullptr;
  const Plan plan = mhla::plan(whole, 2);
  c.execute(plan.backward_workspace(), args, buffer(o), {buffer(g.q), buffer(g.k), buffer(g.v)},
            [&] { mhla::backward(plan, args); });
  EXPECT_EQ(g.q.values(), c.backward(o).q.values());
}

TEST(Operator, MatricesPerRowThatNoCallHasAreRefusedByName) {
  Problem p = problem_of(forms().front());
  p.mixing_per_head = false;
  expect_error([&] { (void)plan(p); }, {"mixing_per_row", "mixing_per_head is false"});

  p = problem_of({Partition::line(64, 8), DType::f32, std::int64_t{1} << 30, 1, 1, Masking::token_causal});
  p.mixing_blocks = std::int64_t{1} << 12;
  expect_error([&] { (void)plan(p); }, {"batch x heads x blocks x blocks of mixing"});

  p = problem_of(forms().front());
  if (p.device != Device::cpu) return;  // matrices in device memory cannot be looked at
  OperatorCase c(p, 8500);
  const std::int64_t M = p.mixing_blocks;
  c.mixing.set(((2 * p.heads + 1) * M + 3) * M + 1, NAN);
  expect_error([&] { (void)c.forward(); }, {"mixing[2][1][3][1] is not finite"});
}

}  // namespace
}  // namespace mhla::test
