// The fast operator against the reference: every option combination, random shapes, all element types.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "api/operator_case.hpp"

namespace mhla::test {
namespace {

Problem base_problem(const Partition& partition) {
  Problem p;
  p.device = test_device();
  p.dtype = DType::f64;
  p.batch = 2;
  p.heads = 2;
  p.kv_heads = 2;
  p.key_dim = 9;
  p.value_dim = 13;
  p.partition = partition;
  p.mixing_blocks = partition.blocks();
  p.options.scale = 0.7;
  p.options.eps = 1e-3;
  p.options.feature_eps = 1e-2;
  return p;
}

// With one block, d_mixing is the sum of o_e d_o_e / m. On a GPU it comes from summaries in the element type: where the
// terms of a token cancel, what remains is known to one rounding of them, and tokens err independently.
double rounding_of_terms(const OperatorCase& c, const TokenTensor& o) {
  if (c.problem.mixing_blocks != 1 || c.problem.device != Device::cuda) return 0;
  if (c.problem.dtype != DType::bf16 && c.problem.dtype != DType::f16) return 0;
  double squares = 0, least = INFINITY;
  for (std::int64_t row = 0; row < o.elements(); row += o.dim) {
    double terms = 0;
    for (std::int64_t e = row; e < row + o.dim; ++e) terms += std::abs(o.get(e) * c.d_o.get(e));
    squares += terms * terms;
  }
  for (const double m : c.mixing.values()) least = std::min(least, std::abs(m));
  return std::ldexp(std::sqrt(squares) / least, c.problem.dtype == DType::bf16 ? -8 : -11);
}

struct Tolerance {
  DType dtype;
  double value;
};

// Gradients subtract nearly equal sums (numerator against denominator), which costs low precisions up to two bits more.
// Where `kept` is given, the backward pass starts from what the forward pass left there.
void expect_matches_reference(const OperatorCase& c, double tolerance, void* kept = nullptr) {
  const double gradient_tolerance = c.problem.dtype == DType::f64 ? tolerance : 4 * tolerance;
  SCOPED_TRACE(describe(c.problem));
  const OperatorCase wide = c.in(DType::f64);
  const Outputs expected = wide.reference_forward();
  const Outputs actual = c.forward(2, kept);
  EXPECT_LE(relative_rms(actual.o.values(), expected.o.values()), tolerance) << "o";
  EXPECT_LE(relative_rms(actual.S.values(), expected.S.values()), tolerance) << "final S";
  EXPECT_LE(relative_rms(actual.z.values(), expected.z.values()), tolerance) << "final z";

  const Gradients want = wide.reference_backward(expected.o);
  const double terms = cancelling_terms(wide, expected.o);
  const auto per_row = [&](const TokenTensor& x) {
    return terms / std::max(1.0, std::sqrt(static_cast<double>(x.dim)));
  };
  const Gradients got = c.backward(actual.o, 2, kept);
  EXPECT_LE(relative_rms(got.q.values(), want.q.values(), per_row(c.q)), gradient_tolerance) << "d_q";
  EXPECT_LE(relative_rms(got.k.values(), want.k.values(), per_row(c.k)), gradient_tolerance) << "d_k";
  EXPECT_LE(relative_rms(got.v.values(), want.v.values()), gradient_tolerance) << "d_v";
  EXPECT_LE(relative_rms(got.q_den.values(), want.q_den.values()), gradient_tolerance) << "d_q_den";
  EXPECT_LE(relative_rms(got.k_den.values(), want.k_den.values()), gradient_tolerance) << "d_k_den";
  const double mixing_terms = std::max(terms, rounding_of_terms(c, expected.o) / gradient_tolerance);
  EXPECT_LE(relative_rms(got.mixing.values(), want.mixing.values(), mixing_terms), gradient_tolerance) << "d_mixing";
  EXPECT_LE(relative_rms(got.S.values(), want.S.values()), gradient_tolerance) << "d_initial S";
  EXPECT_LE(relative_rms(got.z.values(), want.z.values()), gradient_tolerance) << "d_initial z";
}

TEST(Operator, EveryBidirectionalOptionCombinationMatchesTheReference) {
  unsigned seed = 1;
  for (const auto& partition :
       {Partition::grid({6, 5}, {2, 3}), Partition::line(23, 5), Partition::grid({2, 3, 4}, {2, 1, 2})})
    for (const auto map :
         {FeatureMap::identity, FeatureMap::relu, FeatureMap::elu_plus_one, FeatureMap::exp, FeatureMap::squared_relu})
      for (const auto normalizer : {Normalizer::none, Normalizer::paper, Normalizer::authors})
        for (const auto& [per_head, per_row] : {std::pair(false, false), std::pair(true, false), std::pair(true, true)})
          for (const bool separate : {false, true})
            for (const auto algorithm : {Algorithm::summary, Algorithm::dense}) {
              Problem p = base_problem(partition);
              p.options.feature_map = map;
              p.options.normalizer = normalizer;
              p.options.algorithm = algorithm;
              p.mixing_per_head = per_head;
              p.mixing_per_row = per_row;
              p.separate_denominator = separate;
              if (separate && normalizer == Normalizer::none) continue;
              if (algorithm == Algorithm::dense && (separate || normalizer == Normalizer::authors)) continue;
              if (map == FeatureMap::identity && normalizer != Normalizer::none) p.options.eps = 100;
              expect_matches_reference(OperatorCase(p, seed++), 1e-10);
            }
}

// On CUDA causal calls and grouped heads keep theirs as well.
TEST(Operator, KeptSummariesMatchTheReferenceAndAreOnlyRead) {
  unsigned seed = 500;
  for (const auto& [dtype, tolerance] :
       {Tolerance{DType::f64, 1e-10}, Tolerance{DType::f32, 1e-5}, Tolerance{DType::bf16, 8e-3}})
    for (const auto normalizer : {Normalizer::none, Normalizer::paper, Normalizer::authors})
      for (const auto& [masking, kv_heads] :
           {std::pair(Masking::none, 2), std::pair(Masking::none, 1), std::pair(Masking::token_causal, 2)})
        for (const bool separate : {false, true}) {
          if (separate && normalizer == Normalizer::none) continue;
          if (masking != Masking::none && normalizer == Normalizer::authors) continue;
          Problem p =
              base_problem(masking == Masking::none ? Partition::grid({20, 15}, {2, 3}) : Partition::line(100, 50));
          p.dtype = dtype;
          p.options.masking = masking;
          p.options.normalizer = normalizer;
          p.options.algorithm = Algorithm::summary;
          p.kv_heads = kv_heads;
          p.separate_denominator = separate;
          const OperatorCase c(p, seed++);
          const std::size_t bytes = plan(p, 2).kept_bytes();
          const bool keeps = p.device == Device::cuda || (masking == Masking::none && kv_heads == 2);
          ASSERT_EQ(bytes > 0, keeps) << describe(p);
          if (!keeps) continue;
          std::optional<PoisonedWorkspace> on_host;
          std::optional<DeviceMemory> on_device;
          void* const kept = p.device == Device::cpu ? on_host.emplace(bytes).data() : on_device.emplace(bytes).data();
          expect_matches_reference(c, tolerance, kept);
          const TokenTensor o = c.forward(2, kept).o;
          EXPECT_EQ(o.values(), c.forward().o.values()) << describe(p);
          const Gradients first = c.backward(o, 2, kept), second = c.backward(o, 2, kept);
          EXPECT_EQ(first.q.values(), second.q.values()) << describe(p);
          EXPECT_EQ(first.mixing.values(), second.mixing.values()) << describe(p);
        }
}

TEST(Operator, SummariesLargerThanTheirTokensAreNotKept) {
  Problem p = base_problem(Partition::line(64, 4));
  p.key_dim = p.value_dim = 32;
  p.options.algorithm = Algorithm::summary;
  EXPECT_EQ(plan(p).kept_bytes(), 0);
}

TEST(Operator, EveryCausalOptionCombinationMatchesTheReference) {
  unsigned seed = 1000;
  for (const auto masking : {Masking::block_causal, Masking::token_causal})
    for (const auto map : {FeatureMap::relu, FeatureMap::exp})
      for (const auto normalizer : {Normalizer::none, Normalizer::paper})
        for (const bool separate : {false, true})
          for (const std::int64_t initial : {0, 14, 17})
            for (const std::int64_t kv_heads : {1, 4})
              for (const std::int64_t tokens : {1, 6, 23}) {
                Problem p = base_problem(Partition::line(tokens, 7));
                p.options.masking = masking;
                p.options.feature_map = map;
                p.options.normalizer = normalizer;
                p.separate_denominator = separate;
                p.heads = 4;
                p.kv_heads = kv_heads;
                p.mixing_per_head = tokens == 6 || (tokens == 23 && kv_heads == 1);
                p.mixing_per_row = tokens == 23 && kv_heads == 1;
                p.initial_tokens = initial;
                p.mixing_blocks = 8;
                if (separate && normalizer == Normalizer::none) continue;
                if (masking == Masking::block_causal && initial % 7 != 0) continue;
                expect_matches_reference(OperatorCase(p, seed++, 0, true), 1e-10);
              }
}

TEST(Operator, DenseCausalFormMatchesTheReference) {
  for (const auto masking : {Masking::block_causal, Masking::token_causal})
    for (const auto normalizer : {Normalizer::none, Normalizer::paper}) {
      Problem p = base_problem(Partition::line(150, 70));
      p.options.masking = masking;
      p.options.normalizer = normalizer;
      p.options.algorithm = Algorithm::dense;
      p.mixing_blocks = 5;
      expect_matches_reference(OperatorCase(p, 77), 1e-10);
      p.mixing_per_head = p.mixing_per_row = true;
      expect_matches_reference(OperatorCase(p, 78), 1e-10);
    }
}

TEST(Operator, BlocksOfManyTokensAreWalkedInChunks) {
  for (const std::int64_t initial : {0, 100, 150})
    for (const auto normalizer : {Normalizer::none, Normalizer::paper}) {
      Problem p = base_problem(Partition::line(300, 150));
      p.options.masking = Masking::token_causal;
      p.options.normalizer = normalizer;
      p.initial_tokens = initial;
      p.mixing_blocks = 4;
      expect_matches_reference(OperatorCase(p, 5, 0, true), 1e-10);
    }
  Problem p = base_problem(Partition::grid({20, 20}, {2, 2}));
  expect_matches_reference(OperatorCase(p, 6), 1e-10);
}

TEST(Operator, PackedSequencesMatchTheReference) {
  for (const auto masking : {Masking::none, Masking::block_causal, Masking::token_causal})
    for (const std::int64_t initial : {0, 8}) {
      Problem p = base_problem(Partition::line(40, 4));
      p.batch = 1;
      p.cu_seqlens = {0, 0, 7, 8, 21, 40};
      p.options.masking = masking;
      p.mixing_blocks = 7;
      if (masking == Masking::none && initial > 0) continue;
      p.initial_tokens = initial;
      expect_matches_reference(OperatorCase(p, 9, 0, masking != Masking::none), 1e-10);
      p.mixing_per_head = p.mixing_per_row = true;  // of the one row that holds all sequences
      expect_matches_reference(OperatorCase(p, 10, 0, masking != Masking::none), 1e-10);
    }
}

TEST(Operator, RandomShapesMatchTheReferenceInEveryElementType) {
  std::mt19937 random(20260112);
  const auto pick = [&](const std::vector<std::int64_t>& from) { return from[random() % from.size()]; };
  for (const auto& [dtype, tolerance] : {Tolerance{DType::f64, 1e-10}, Tolerance{DType::f32, 1e-5},
                                         Tolerance{DType::f16, 2e-3}, Tolerance{DType::bf16, 8e-3}})
    for (int repetition = 0; repetition < 40; ++repetition) {
      const std::int64_t C = pick({1, 3, 8, 16, 65});
      const std::int64_t tokens = pick({0, 1, C > 1 ? C - 1 : 1, C, C + 1, 13, 53, 97});
      Problem p = base_problem(Partition::line(tokens, C));
      const auto form = random() % 3;
      if (form == 1 && tokens > 0) {
        const std::int64_t w = pick({1, 5, 8, 11});
        p.partition = Partition::by_extent({pick({2, 7, 9}), w}, {pick({2, 3}), pick({1, 4})});
      }
      p.dtype = dtype;
      p.batch = pick({1, 2, 3});
      p.kv_heads = pick({1, 2, 3});
      p.heads = p.kv_heads * pick({1, 2});
      p.key_dim = pick({8, 16, 17, 31, 64, 128});
      p.value_dim = pick({8, 16, 23, 64, 96});
      p.mixing_blocks = p.partition.blocks();
      p.options.feature_map = static_cast<FeatureMap>(random() % 5);
      p.options.normalizer =
          p.options.feature_map == FeatureMap::identity ? Normalizer::none : static_cast<Normalizer>(random() % 3);
      p.options.masking = p.partition.is_line() ? static_cast<Masking>(random() % 3) : Masking::none;
      if (p.options.masking != Masking::none && p.options.normalizer == Normalizer::authors)
        p.options.normalizer = Normalizer::paper;
      if (p.options.feature_map == FeatureMap::exp) p.options.scale = 0.1;
      if (repetition % 4 < 2) p.options.algorithm = Algorithm::summary;
      p.mixing_per_head = repetition % 3 < 2;
      p.mixing_per_row = repetition % 3 == 0;
      expect_matches_reference(OperatorCase(p, static_cast<unsigned>(random()), repetition % 2 == 0 ? 0 : 3,
                                            p.options.masking != Masking::none),
                               tolerance);
    }
}

// Heads of 64 and 128 columns, blocks of whole and of cut boxes, more heads than a GPU has multiprocessors: what
// kernels for one chip take over from the portable ones.
TEST(Operator, HeadsOfWholeTilesMatchTheReference) {
  struct Form {
    Partition partition;
    std::int64_t batch, heads, key_dim, value_dim;
  };
  const std::vector<Form> forms = {
      {Partition::grid({16, 16}, {4, 4}), 2, 2, 64, 64},
      {Partition::line(192, 16), 1, 3, 64, 64},
      {Partition::grid({8, 8}, {2, 2}), 30, 6, 64, 64},
      {Partition::line(200, 64), 2, 2, 64, 64},
      {Partition::line(130, 26), 1, 2, 128, 64},
      {Partition::line(150, 25), 1, 2, 64, 128},
      {Partition::by_extent({11, 14}, {4, 6}), 2, 2, 64, 64},
      {Partition::by_extent({9, 8, 7}, {7, 6, 5}), 1, 2, 128, 128},
      {Partition::line(1300, 16), 1, 1, 64, 64},
  };
  unsigned seed = 5000;
  for (const Form& form : forms)
    for (const auto& [dtype, tolerance] : {Tolerance{DType::f16, 2e-3}, Tolerance{DType::bf16, 8e-3}})
      for (const auto normalizer : {Normalizer::none, Normalizer::paper}) {
        Problem p = base_problem(form.partition);
        p.dtype = dtype;
        p.batch = form.batch;
        p.heads = p.kv_heads = form.heads;
        p.key_dim = form.key_dim;
        p.value_dim = form.value_dim;
        p.options.normalizer = normalizer;
        if (normalizer == Normalizer::none) p.options.feature_eps = 0;
        if (normalizer == Normalizer::none && dtype == DType::bf16) p.options.feature_map = FeatureMap::identity;
        p.mixing_per_head = p.mixing_per_row = (dtype == DType::bf16) == (normalizer == Normalizer::paper);
        expect_matches_reference(OperatorCase(p, seed++), tolerance);
      }
}

// What a language model asks for: blocks of 64 tokens, features made beforehand, no normaliser.
TEST(Operator, CausalHeadsOfWholeTilesMatchTheReference) {
  unsigned seed = 5700;
  for (const auto& [key_dim, value_dim] :
       {std::pair(64, 64), std::pair(64, 128), std::pair(128, 64), std::pair(128, 256), std::pair(256, 128),
        std::pair(256, 64), std::pair(64, 256), std::pair(256, 256)})
    for (const auto& [dtype, tolerance] : {Tolerance{DType::f16, 2e-3}, Tolerance{DType::bf16, 8e-3}}) {
      Problem p = base_problem(Partition::line(320, 64));
      p.dtype = dtype;
      p.heads = p.kv_heads = 3;
      p.key_dim = key_dim;
      p.value_dim = value_dim;
      p.options.masking = Masking::token_causal;
      p.options.normalizer = Normalizer::none;
      p.options.feature_map = FeatureMap::identity;
      p.options.feature_eps = 0;
      p.options.scale = 0.125;
      p.mixing_per_head = key_dim >= value_dim;
      p.mixing_per_row = key_dim > value_dim;
      expect_matches_reference(OperatorCase(p, seed++), tolerance);
    }
}

// Sums of keys, mixed or not, and denominators beyond the largest half, 65,504; gradients of a size that half can hold.
TEST(Operator, SumsOfKeysBeyondTheLargestHalfMatchTheReference) {
  struct Form {
    Partition partition;
    std::int64_t batch, heads, key_dim, value_dim;
    Masking masking;
    Algorithm algorithm;
    bool separate;
  };
  using enum Masking;
  using enum Algorithm;
  const std::vector<Form> forms = {
      {Partition::line(256, 64), 2, 2, 64, 64, none, summary, false},
      {Partition::line(256, 64), 2, 2, 128, 64, none, summary, false},
      {Partition::grid({16, 8}, {2, 1}), 2, 34, 64, 64, none, summary, false},
      {Partition::grid({16, 8}, {2, 1}), 4, 34, 32, 32, none, summary, false},
      {Partition::line(250, 50), 1, 2, 24, 40, none, summary, false},
      {Partition::line(250, 50), 1, 2, 24, 40, none, summary, true},
      {Partition::line(256, 64), 1, 2, 64, 64, block_causal, summary, false},
      {Partition::line(250, 50), 1, 2, 64, 64, token_causal, summary, false},
      {Partition::grid({16, 16}, {4, 4}), 2, 2, 64, 64, none, dense, false},
      {Partition::line(250, 50), 1, 2, 24, 40, token_causal, dense, false},
  };
  unsigned seed = 5900;
  for (const Form& form : forms) {
    Problem p = base_problem(form.partition);
    p.dtype = DType::f16;
    p.batch = form.batch;
    p.heads = p.kv_heads = form.heads;
    p.key_dim = form.key_dim;
    p.value_dim = form.value_dim;
    p.options.masking = form.masking;
    p.options.algorithm = form.algorithm;
    p.options.feature_eps = 0;
    p.separate_denominator = form.separate;
    OperatorCase c(p, seed);
    std::mt19937 random(seed++);
    std::uniform_real_distribution<double> around_one(0.5, 1.5);
    std::normal_distribution<double> normal;
    c.q.fill([&] { return 0.01 * around_one(random); });
    c.k.fill([&] { return 2000 * around_one(random); });
    c.d_o.fill([&] { return 1024 * normal(random); });
    if (form.separate) c.q_den = c.q, c.k_den = c.k;
    expect_matches_reference(c, 2e-3);
  }
}

TEST(Operator, HeadsWiderThanTheKernelsAreRefusedByName) {
  Problem p = base_problem(Partition::line(70, 33));
  p.value_dim = test_device() == Device::cuda ? 257 : 4097;
  try {
    plan(p);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("value_dim"), std::string::npos) << error.what();
  }
}

TEST(Operator, WideHeadsSpanSeveralPanels) {
  const bool on_cuda = test_device() == Device::cuda;
  for (const auto dtype : {DType::f64, DType::f32}) {
    Problem p = base_problem(Partition::line(70, 33));
    p.dtype = dtype;
    p.key_dim = on_cuda ? 256 : 300;
    p.value_dim = on_cuda ? 250 : 270;
    const double tolerance = dtype == DType::f64 ? 1e-10 : 1e-5;
    expect_matches_reference(OperatorCase(p, 3), tolerance);
    p.options.masking = Masking::token_causal;
    expect_matches_reference(OperatorCase(p, 4, 0, true), tolerance);
    p.options.masking = Masking::none;
    p.options.algorithm = Algorithm::dense;
    expect_matches_reference(OperatorCase(p, 5), tolerance);
  }
}

TEST(Operator, GradientsOfTheReferenceAreThoseOfFiniteDifferences) {
  unsigned seed = 50;
  for (const auto masking : {Masking::none, Masking::block_causal, Masking::token_causal})
    for (const auto normalizer : {Normalizer::none, Normalizer::paper, Normalizer::authors})
      for (const auto map : {FeatureMap::identity, FeatureMap::relu, FeatureMap::elu_plus_one, FeatureMap::exp,
                             FeatureMap::squared_relu})
        for (const bool separate : {false, true}) {
          if (masking != Masking::none && normalizer == Normalizer::authors) continue;
          if (separate && normalizer == Normalizer::none) continue;
          Problem p = base_problem(Partition::line(7, 3));
          p.batch = 1;
          p.heads = 2;
          p.kv_heads = 1;
          p.key_dim = 3;
          p.value_dim = 2;
          p.mixing_per_head = p.mixing_per_row = separate;
          p.options.masking = masking;
          p.options.normalizer = normalizer;
          p.options.feature_map = map;
          p.separate_denominator = separate;
          p.initial_tokens = masking == Masking::none ? 0 : (masking == Masking::token_causal ? 4 : 3);
          p.mixing_blocks = p.final_blocks();
          if (map == FeatureMap::identity) p.options.eps = 30;
          SCOPED_TRACE(describe(p));
          OperatorCase c(p, seed++, 0, masking != Masking::none);

          const auto loss = [&] {
            const Outputs out = c.reference_forward();
            double sum = 0;
            for (std::int64_t i = 0; i < out.o.elements(); ++i) sum += out.o.get(i) * c.d_o.get(i);
            for (std::int64_t i = 0; i < out.S.elements(); ++i) sum += out.S.get(i) * c.d_S.get(i);
            for (std::int64_t i = 0; i < out.z.elements(); ++i) sum += out.z.get(i) * c.d_z.get(i);
            return sum;
          };
          const Gradients g = c.reference_backward(c.reference_forward().o);
          const auto check = [&](const char* name, auto& x, const auto& gradient) {
            std::vector<double> numeric, analytic;
            for (std::int64_t i = 0; i < x.elements(); ++i) {
              constexpr double kStep = 1e-5;
              const double at = x.get(i);
              x.set(i, at + kStep);
              const double above = loss();
              x.set(i, at - kStep);
              const double below = loss();
              x.set(i, at);
              numeric.push_back((above - below) / (2 * kStep));
              analytic.push_back(gradient.get(i));
            }
            EXPECT_LE(relative_rms(analytic, numeric), 1e-6) << name;
          };
          check("q", c.q, g.q);
          check("k", c.k, g.k);
          check("v", c.v, g.v);
          check("mixing", c.mixing, g.mixing);
          if (separate) {
            check("q_den", c.q_den, g.q_den);
            check("k_den", c.k_den, g.k_den);
          }
          check("S0", c.S0, g.S);
          check("z0", c.z0, g.z);
        }
}

}  // namespace
}  // namespace mhla::test
