// Identities the operator must satisfy whatever the numbers are.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "api/operator_case.hpp"
#include "mhla/state.hpp"

namespace mhla::test {
namespace {

Problem problem(const Partition& partition, Masking masking = Masking::none,
                Normalizer normalizer = Normalizer::paper) {
  Problem p;
  p.device = test_device();
  p.dtype = DType::f64;
  p.batch = 2;
  p.heads = 3;
  p.kv_heads = 3;
  p.key_dim = 10;
  p.value_dim = 12;
  p.partition = partition;
  p.mixing_blocks = partition.blocks();
  p.options.masking = masking;
  p.options.normalizer = normalizer;
  return p;
}

// Tokens [begin, end) of a tensor.
TokenTensor slice(const TokenTensor& x, std::int64_t begin, std::int64_t end) {
  TokenTensor out(x.dtype, x.batch, end - begin, x.heads, x.dim);
  const std::int64_t row = x.heads * x.dim;
  for (std::int64_t b = 0; b < x.batch; ++b)
    for (std::int64_t e = 0; e < (end - begin) * row; ++e)
      out.set(b * (end - begin) * row + e, x.get((b * x.tokens + begin) * row + e));
  return out;
}

TokenTensor batch_row(const TokenTensor& x, std::int64_t b) {
  TokenTensor out(x.dtype, 1, x.tokens, x.heads, x.dim);
  const std::int64_t size = x.tokens * x.heads * x.dim;
  for (std::int64_t e = 0; e < size; ++e) out.set(e, x.get(b * size + e));
  return out;
}

OperatorCase with_tokens(const OperatorCase& c, const Problem& p,
                         const std::function<TokenTensor(const TokenTensor&)>& take) {
  OperatorCase out = c;
  out.problem = p;
  out.q = take(c.q), out.k = take(c.k), out.v = take(c.v), out.d_o = take(c.d_o);
  return out;
}

// Plain linear attention, token by token.
TokenTensor linear_attention(const OperatorCase& c) {
  const auto& p = c.problem;
  TokenTensor out(p.dtype, p.batch, p.partition.tokens(), p.heads, p.value_dim);
  const auto phi = [](double x) { return std::max(x, 0.0); };
  const auto at = [&](const TokenTensor& x, std::int64_t b, std::int64_t n, std::int64_t h, std::int64_t r) {
    return x.get(((b * x.tokens + n) * x.heads + h) * x.dim + r);
  };
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads; ++h)
      for (std::int64_t t = 0; t < p.partition.tokens(); ++t) {
        std::vector<double> sum(static_cast<std::size_t>(p.value_dim), 0.0);
        double den = p.options.normalizer == Normalizer::none ? 1.0 : p.options.eps;
        for (std::int64_t s = 0; s < p.partition.tokens(); ++s) {
          double a = 0;
          for (std::int64_t r = 0; r < p.key_dim; ++r) a += phi(at(c.q, b, t, h, r)) * phi(at(c.k, b, s, h, r));
          if (p.options.normalizer != Normalizer::none) den += a;
          for (std::int64_t e = 0; e < p.value_dim; ++e) sum[static_cast<std::size_t>(e)] += a * at(c.v, b, s, h, e);
        }
        for (std::int64_t e = 0; e < p.value_dim; ++e)
          out.set(((b * p.partition.tokens() + t) * p.heads + h) * p.value_dim + e,
                  sum[static_cast<std::size_t>(e)] / den);
      }
  return out;
}

TEST(Identity, OneBlockOrConstantMixingIsPlainLinearAttention) {
  for (const auto normalizer : {Normalizer::none, Normalizer::paper})
    for (const auto algorithm : {Algorithm::summary, Algorithm::dense})
      for (const auto& partition : {Partition::line(30, 30), Partition::grid({6, 5}, {3, 2})}) {
        Problem p = problem(partition, Masking::none, normalizer);
        p.options.algorithm = algorithm;
        p.options.eps = 0;
        OperatorCase c(p, 1);
        c.mixing.fill([&] { return normalizer == Normalizer::none ? 1.0 : 0.37; });
        EXPECT_LE(relative_rms(c.forward().o.values(), linear_attention(c).values()), 1e-12);
      }
}

TEST(Identity, IdentityMixingIsAttentionInsideEachBlock) {
  for (const auto masking : {Masking::none, Masking::block_causal, Masking::token_causal}) {
    Problem p = problem(Partition::line(40, 8), masking);
    OperatorCase c(p, 2);
    for (std::int64_t i = 0; i < 5; ++i)
      for (std::int64_t b = 0; b < 5; ++b) c.mixing.set(i * 5 + b, i == b ? 1 : 0);
    const Outputs whole = c.forward();
    for (std::int64_t b = 0; b < 5; ++b) {
      Problem part = problem(Partition::line(8, 8), masking);
      OperatorCase alone = with_tokens(c, part, [&](const TokenTensor& x) { return slice(x, 8 * b, 8 * b + 8); });
      alone.mixing = StateTensor(p.dtype, 1);
      alone.mixing.set(0, 1.0);
      EXPECT_LE(relative_rms(slice(whole.o, 8 * b, 8 * b + 8).values(), alone.forward().o.values()), 1e-12);
    }
  }
}

TEST(Identity, PermutingBlocksTogetherWithTheMatrixPermutesTheOutput) {
  const std::vector<std::int64_t> order{3, 0, 4, 1, 2};
  for (const auto normalizer : {Normalizer::none, Normalizer::paper, Normalizer::authors}) {
    const Problem p = problem(Partition::line(40, 8), Masking::none, normalizer);
    const OperatorCase c(p, 3);
    const auto permuted = [&](const TokenTensor& x) {
      TokenTensor out(x.dtype, x.batch, x.tokens, x.heads, x.dim);
      const std::int64_t block = 8 * x.heads * x.dim;
      for (std::int64_t b = 0; b < x.batch; ++b)
        for (std::int64_t j = 0; j < 5; ++j)
          for (std::int64_t e = 0; e < block; ++e)
            out.set((b * 5 + j) * block + e, x.get((b * 5 + order[j]) * block + e));
      return out;
    };
    OperatorCase other = with_tokens(c, p, permuted);
    for (std::int64_t i = 0; i < 5; ++i)
      for (std::int64_t b = 0; b < 5; ++b) other.mixing.set(i * 5 + b, c.mixing.get(order[i] * 5 + order[b]));
    EXPECT_LE(relative_rms(other.forward().o.values(), permuted(c.forward().o).values()), 1e-12);
  }
}

// Runs tokens [0, cut) and [cut, N) as two calls that hand over the state.
TokenTensor in_two_calls(const OperatorCase& c, std::int64_t cut) {
  const std::int64_t N = c.problem.partition.tokens();
  const std::int64_t C = c.problem.partition.block_capacity();
  Problem first = c.problem, second = c.problem;
  first.partition = Partition::line(cut, C);
  second.partition = Partition::line(N - cut, C);
  second.initial_tokens = cut;
  OperatorCase a = with_tokens(c, first, [&](const TokenTensor& x) { return slice(x, 0, cut); });
  a.with_state = true;
  const Outputs head = a.forward();
  OperatorCase b = with_tokens(c, second, [&](const TokenTensor& x) { return slice(x, cut, N); });
  if (cut > 0) b.S0 = head.S, b.z0 = head.z;
  const Outputs tail = b.forward();
  TokenTensor out(c.problem.dtype, c.problem.batch, N, c.problem.heads, c.problem.value_dim);
  const std::int64_t row = c.problem.heads * c.problem.value_dim;
  for (std::int64_t batch = 0; batch < c.problem.batch; ++batch)
    for (std::int64_t e = 0; e < N * row; ++e)
      out.set(batch * N * row + e,
              e < cut * row ? head.o.get(batch * cut * row + e) : tail.o.get(batch * (N - cut) * row + e - cut * row));
  return out;
}

TEST(Identity, SplittingACausalCallAnywhereEqualsOneCallAndBitForBitAtBlockBorders) {
  for (const auto dtype : {DType::f64, DType::f32})
    for (const auto normalizer : {Normalizer::none, Normalizer::paper})
      for (const auto masking : {Masking::token_causal, Masking::block_causal}) {
        Problem p = problem(Partition::line(150, 16), masking, normalizer);
        p.dtype = dtype;
        const OperatorCase c(p, 4);
        const auto whole = c.forward().o.values();
        for (const std::int64_t cut : {0, 1, 15, 16, 17, 64, 80, 149, 150}) {
          if (masking == Masking::block_causal && cut % 16 != 0) continue;
          const auto split = in_two_calls(c, cut).values();
          EXPECT_LE(relative_rms(split, whole), dtype == DType::f64 ? 1e-12 : 1e-6) << cut;
          if (cut % 16 == 0) {
            EXPECT_EQ(split, whole) << cut;
          }
        }
      }
}

TEST(Identity, ThreeIndependentFormsAgree) {
  for (const auto normalizer : {Normalizer::none, Normalizer::paper}) {
    Problem p = problem(Partition::line(75, 8), Masking::token_causal, normalizer);
    OperatorCase c(p, 5);
    const auto summary = c.forward().o.values();
    c.problem.options.algorithm = Algorithm::dense;
    EXPECT_LE(relative_rms(c.forward().o.values(), summary), 1e-10);
    EXPECT_LE(relative_rms(c.reference_forward().o.values(), summary), 1e-10);

    StateConfig config{.dtype = p.dtype,
                       .batch = p.batch,
                       .heads = p.heads,
                       .kv_heads = p.kv_heads,
                       .key_dim = p.key_dim,
                       .value_dim = p.value_dim,
                       .block_size = 8,
                       .mixing_blocks = p.mixing_blocks,
                       .options = p.options};
    State state(config, c.mixing.data());
    TokenTensor o(p.dtype, p.batch, 75, p.heads, p.value_dim);
    const auto token = [](auto view, std::int64_t t) {
      using Byte = std::conditional_t<std::is_same_v<decltype(view), Tensor>, std::byte, const std::byte>;
      view.data = static_cast<Byte*>(view.data) + t * view.token_stride * static_cast<std::int64_t>(sizeof(double));
      return view;
    };
    const OperatorCase& in = c;
    for (std::int64_t t = 0; t < 75; ++t)
      state.step(token(in.q.view(), t), token(in.k.view(), t), token(in.v.view(), t), token(o.view(), t));
    EXPECT_LE(relative_rms(o.values(), summary), 1e-10);
  }
}

TEST(Identity, PackedSequencesEqualALoopOverThem) {
  for (const auto masking : {Masking::none, Masking::block_causal, Masking::token_causal}) {
    Problem p = problem(Partition::line(61, 8), masking);
    p.batch = 1;
    p.cu_seqlens = {0, 13, 14, 14, 61};
    p.mixing_blocks = 6;
    p.options.algorithm = Algorithm::summary;
    const OperatorCase c(p, 6);
    const auto packed = c.forward().o;
    for (std::size_t s = 0; s + 1 < p.cu_seqlens.size(); ++s) {
      const auto begin = p.cu_seqlens[s], end = p.cu_seqlens[s + 1];
      Problem one = p;
      one.cu_seqlens = {0, end - begin};
      one.partition = Partition::line(end - begin, 8);
      const OperatorCase alone = with_tokens(c, one, [&](const TokenTensor& x) { return slice(x, begin, end); });
      EXPECT_EQ(slice(packed, begin, end).values(), alone.forward().o.values());
    }
  }
}

TEST(Identity, ABatchOfOneIsARowOfABatch) {
  for (const auto masking : {Masking::none, Masking::token_causal}) {
    Problem p = problem(Partition::line(40, 8), masking);
    p.dtype = DType::f32;
    p.batch = 5;
    const OperatorCase c(p, 7);
    const auto all = c.forward().o;
    const auto gradients = c.backward(all);
    for (std::int64_t b = 0; b < p.batch; ++b) {
      Problem one = p;
      one.batch = 1;
      const OperatorCase alone = with_tokens(c, one, [&](const TokenTensor& x) { return batch_row(x, b); });
      const auto o = alone.forward().o;
      EXPECT_EQ(batch_row(all, b).values(), o.values());
      EXPECT_EQ(batch_row(gradients.q, b).values(), alone.backward(o).q.values());
    }
  }
}

TEST(Identity, ResultsAreTheSameBitsInEveryRunAndOnAnyNumberOfThreads) {
  for (const auto masking : {Masking::none, Masking::token_causal})
    for (const auto algorithm : {Algorithm::summary, Algorithm::dense}) {
      Problem p = problem(Partition::line(100, 16), masking);
      p.dtype = DType::f32;
      p.options.algorithm = algorithm;
      const OperatorCase c(p, 8);
      const auto o = c.forward(1).o;
      const auto g = c.backward(o, 1);
      for (int repetition = 0; repetition < 100; ++repetition) {
        const int threads = 1 + repetition % 5;
        ASSERT_EQ(c.forward(threads).o.values(), o.values()) << threads;
        const auto again = c.backward(o, threads);
        ASSERT_EQ(again.q.values(), g.q.values()) << threads;
        ASSERT_EQ(again.k.values(), g.k.values()) << threads;
        ASSERT_EQ(again.v.values(), g.v.values()) << threads;
        ASSERT_EQ(again.mixing.values(), g.mixing.values()) << threads;
      }
    }
}

}  // namespace
}  // namespace mhla::test
