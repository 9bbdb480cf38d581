// What must not meet does not meet, not even as NaN or infinity: later blocks and earlier ones, sequences, heads. And
// numbers at the edge: scales, keys and values of zero, more heads and longer blocks than usual.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "api/operator_case.hpp"

namespace mhla::test {
namespace {

struct Element {
  DType dtype;
  double tolerance;
};
constexpr Element kElements[] = {{DType::f64, 1e-12}, {DType::f32, 1e-5}, {DType::f16, 2e-3}, {DType::bf16, 8e-3}};
constexpr Algorithm kAlgorithms[] = {Algorithm::summary, Algorithm::dense};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Form {
  Partition partition;
  std::int64_t batch, heads, key_dim, value_dim;
};

Problem problem(const Form& form, DType dtype, Algorithm algorithm, Masking masking = Masking::none) {
  Problem p;
  p.device = test_device();
  p.dtype = dtype;
  p.batch = form.batch;
  p.heads = p.kv_heads = form.heads;
  p.key_dim = form.key_dim;
  p.value_dim = form.value_dim;
  p.partition = form.partition;
  p.mixing_blocks = form.partition.blocks();
  p.options.algorithm = algorithm;
  p.options.masking = masking;
  return p;
}

// Whether a row of a tensor is looked at.
using Choice = std::function<bool(std::int64_t token, std::int64_t head)>;

// f(token, first element) for the chosen rows.
template <typename F>
void for_each_row(const TokenTensor& x, const Choice& where, F&& f) {
  for (std::int64_t row = 0; row * x.dim < x.elements(); ++row)
    if (where(row / x.heads % x.tokens, row % x.heads)) f(row / x.heads % x.tokens, row * x.dim);
}
// NaN in every other token, infinity in the rest.
void spoil(TokenTensor& x, const Choice& where) {
  for_each_row(x, where, [&](std::int64_t token, std::int64_t first) {
    for (std::int64_t e = first; e < first + x.dim; ++e) x.set(e, token % 2 == 0 ? kNaN : kInfinity);
  });
}
std::vector<double> chosen(const TokenTensor& x, const Choice& where) {
  std::vector<double> out;
  for_each_row(x, where, [&](std::int64_t, std::int64_t first) {
    for (std::int64_t e = first; e < first + x.dim; ++e) out.push_back(x.get(e));
  });
  return out;
}

struct Results {
  Outputs out;
  Gradients gradients;
  explicit Results(const OperatorCase& c) : out(c.forward()), gradients(c.backward(out.o)) {}
};

bool has_two_bytes(const Problem& p) { return element_size(p.dtype) == 2; }

// Calls f with the problem and a tolerance, for blocks of every kind that a kernel of its own takes.
void for_each_problem(const std::vector<Masking>& maskings, const std::function<void(Problem, double)>& f) {
  const std::vector<Form> forms = {
      {Partition::line(160, 8), 1, 2, 16, 16},
      {Partition::line(100, 20), 1, 2, 24, 40},
      {Partition::line(256, 64), 1, 2, 64, 64},
      {Partition::line(192, 64), 1, 17, 128, 128},  // causal heads of a language model
  };
  for (const Form& form : forms)
    for (const auto& [dtype, tolerance] : kElements)
      for (const Algorithm algorithm : kAlgorithms)
        for (const Masking masking : maskings)
          for (const Normalizer normalizer : {Normalizer::none, Normalizer::paper}) {
            Problem p = problem(form, dtype, algorithm, masking);
            p.options.normalizer = normalizer;
            if (normalizer == Normalizer::none) p.options.feature_map = FeatureMap::identity;
            const bool plain_causal = masking == Masking::token_causal && normalizer == Normalizer::none;
            if (form.heads > 2 && !(has_two_bytes(p) && plain_causal && algorithm == Algorithm::summary)) continue;
            SCOPED_TRACE(describe(p));
            f(p, tolerance);
          }
}
const std::vector<Masking> kCausal = {Masking::block_causal, Masking::token_causal};
const std::vector<Masking> kMaskings = {Masking::none, Masking::block_causal, Masking::token_causal};

TEST(Robustness, LaterBlocksNeverReachEarlierOnesInAnyAlgorithm) {
  for_each_problem(kCausal, [](const Problem& p, double tolerance) {
    const std::int64_t blocks = p.partition.blocks(), first = blocks / 2, token = first * p.partition.block_capacity();
    const Choice early = [=](std::int64_t t, std::int64_t) { return t < token; };
    const Choice late = [=](std::int64_t t, std::int64_t) { return t >= token; };
    const OperatorCase clean(p, 3);
    OperatorCase dirty = clean;
    spoil(dirty.k, late);
    spoil(dirty.v, late);
    const Results want(clean), got(dirty);
    const auto compare = [&](const TokenTensor& a, const TokenTensor& b, const char* what) {
      EXPECT_LE(relative_rms(chosen(a, early), chosen(b, early)), tolerance) << what;
    };
    compare(got.out.o, want.out.o, "o");
    compare(got.gradients.q, want.gradients.q, "d_q");
    // A later query's own denominator is not a number, and reaches the keys it sees.
    if (p.options.normalizer == Normalizer::none) {
      compare(got.gradients.k, want.gradients.k, "d_k");
      compare(got.gradients.v, want.gradients.v, "d_v");
    }
    const auto rows = [&](const StateTensor& x) {
      const std::vector<double> all = x.values();
      return std::vector<double>(all.begin(), all.begin() + first * blocks);
    };
    EXPECT_LE(relative_rms(rows(got.gradients.mixing), rows(want.gradients.mixing)), tolerance) << "d_mixing";
  });
}

TEST(Robustness, EarlierQueriesNeverReachLaterKeysInAnyAlgorithm) {
  for_each_problem(kCausal, [](const Problem& p, double tolerance) {
    const std::int64_t token = p.partition.blocks() / 2 * p.partition.block_capacity();
    const Choice early = [=](std::int64_t t, std::int64_t) { return t < token; };
    const Choice late = [=](std::int64_t t, std::int64_t) { return t >= token; };
    const OperatorCase clean(p, 4);
    OperatorCase dirty = clean;
    spoil(dirty.q, early);
    spoil(dirty.d_o, early);
    const Results want(clean), got(dirty);
    const auto compare = [&](const TokenTensor& a, const TokenTensor& b, const char* what) {
      EXPECT_LE(relative_rms(chosen(a, late), chosen(b, late)), tolerance) << what;
    };
    compare(got.out.o, want.out.o, "o");
    compare(got.gradients.q, want.gradients.q, "d_q");
    compare(got.gradients.k, want.gradients.k, "d_k");
    compare(got.gradients.v, want.gradients.v, "d_v");
  });
}

// `inside` is spoiled, in one tensor after the other; what lies outside stays as it was, bit for bit.
void expect_outside_untouched(const OperatorCase& clean, const Choice& inside) {
  const Choice outside = [&](std::int64_t t, std::int64_t h) { return !inside(t, h); };
  const Results want(clean);
  using Member = TokenTensor OperatorCase::*;
  const std::pair<const char*, Member> tensors[] = {
      {"q", &OperatorCase::q}, {"k", &OperatorCase::k}, {"v", &OperatorCase::v}, {"d_o", &OperatorCase::d_o}};
  for (const auto& [name, tensor] : tensors) {
    OperatorCase dirty = clean;
    spoil(dirty.*tensor, inside);
    const Results got(dirty);
    const auto compare = [&, name = name](const TokenTensor& a, const TokenTensor& b, const char* what) {
      EXPECT_TRUE(chosen(a, outside) == chosen(b, outside)) << what << " with NaN and infinity in " << name;
    };
    compare(got.out.o, want.out.o, "o");
    compare(got.gradients.q, want.gradients.q, "d_q");
    compare(got.gradients.k, want.gradients.k, "d_k");
    compare(got.gradients.v, want.gradients.v, "d_v");
  }
}

TEST(Robustness, PackedSequencesShareNoNaN) {
  for (const auto& [dtype, tolerance] : kElements)
    for (const Algorithm algorithm : kAlgorithms)
      for (const Masking masking : kMaskings) {
        Problem p = problem({Partition::line(160, 16), 1, 2, 24, 16}, dtype, algorithm, masking);
        p.cu_seqlens = {0, 37, 101, 160};
        p.mixing_blocks = 4;
        SCOPED_TRACE(describe(p));
        expect_outside_untouched(OperatorCase(p, 5), [](std::int64_t t, std::int64_t) { return t >= 37 && t < 101; });
      }
}

// Heads of 32 columns share tiles where there are enough of them to fill a GPU.
TEST(Robustness, HeadsShareNoInfinityOrNaN) {
  const std::vector<Form> forms = {
      {Partition::line(128, 64), 4, 34, 32, 32},
      {Partition::line(128, 64), 2, 34, 64, 64},
      {Partition::line(64, 16), 2, 3, 64, 64},
      {Partition::line(50, 8), 1, 3, 20, 12},
  };
  for (const Form& form : forms)
    for (const auto& [dtype, tolerance] : kElements)
      for (const Algorithm algorithm : kAlgorithms)
        for (const Normalizer normalizer : {Normalizer::none, Normalizer::paper}) {
          Problem p = problem(form, dtype, algorithm);
          p.options.normalizer = normalizer;
          if (form.heads > 3 && !(has_two_bytes(p) && algorithm == Algorithm::summary)) continue;
          SCOPED_TRACE(describe(p));
          expect_outside_untouched(OperatorCase(p, 6), [](std::int64_t, std::int64_t head) { return head == 1; });
        }
}

void expect_zeros(const std::vector<double>& x, const char* what) {
  for (const double value : x) ASSERT_EQ(value, 0.0) << what;
}

TEST(Robustness, AScaleOfZeroGivesZeros) {
  for_each_problem(kMaskings, [](Problem p, double) {
    p.options.scale = 0;
    p.options.eps = 1e-2;
    const Results got(OperatorCase(p, 7));
    expect_zeros(got.out.o.values(), "o");
    expect_zeros(got.gradients.q.values(), "d_q");
    expect_zeros(got.gradients.k.values(), "d_k");
    expect_zeros(got.gradients.v.values(), "d_v");
    expect_zeros(got.gradients.mixing.values(), "d_mixing");
  });
}

TEST(Robustness, ZeroKeysOrValuesGiveZerosInEveryElementType) {
  for_each_problem(kMaskings, [](Problem p, double) {
    p.options.eps = 1e-2;
    const OperatorCase c(p, 8);
    OperatorCase no_keys = c, no_values = c;
    no_keys.k.fill([] { return 0.0; });
    no_values.v.fill([] { return 0.0; });
    for (const OperatorCase* of : {&no_keys, &no_values}) {
      const Results got(*of);
      expect_zeros(got.out.o.values(), "o");
      for (const TokenTensor* x : {&got.gradients.q, &got.gradients.k, &got.gradients.v})
        for (const double value : x->values()) ASSERT_TRUE(std::isfinite(value));
    }
  });
}

TEST(Robustness, AMatrixForEachOfManyHeadsMatchesTheReference) {
  Problem p = problem({Partition::line(4, 2), 1, 70000, 2, 1}, DType::f32, Algorithm::summary);
  p.mixing_per_head = true;
  p.options.eps = 1e-2;
  const OperatorCase c(p, 9);
  EXPECT_LE(relative_rms(c.forward().o.values(), c.in(DType::f64).reference_forward().o.values()), 1e-5);
}

TEST(Robustness, BlocksLongerThanTheSequenceMatchTheReference) {
  for (const auto& [dtype, tolerance] : kElements)
    for (const Algorithm algorithm : kAlgorithms)
      for (const Masking masking : {Masking::none, Masking::token_causal}) {
        Problem p = problem({Partition::line(100, 1 << 20), 1, 2, 64, 64}, dtype, algorithm, masking);
        p.options.eps = 1e-2;
        SCOPED_TRACE(describe(p));
        const OperatorCase c(p, 10);
        EXPECT_LE(relative_rms(c.forward().o.values(), c.in(DType::f64).reference_forward().o.values()), tolerance);
      }
}

}  // namespace
}  // namespace mhla::test
