// Bad tensors give an mhla::Error that begins with the argument's name.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "mhla/torch.hpp"
#include "torch/device.hpp"

namespace mhla {
namespace {

at::Tensor random(at::IntArrayRef sizes) { return torch::rand(sizes, test::device()); }

struct Arguments {
  at::Tensor q = random({2, 16, 4, 6});
  at::Tensor k = random({2, 16, 2, 6});
  at::Tensor v = random({2, 16, 2, 5});
  at::Tensor mixing = random({4, 4});
  AttentionOptions options{.partition = Partition::grid({4, 4}, {2, 2})};
};

struct BadCase {
  const char* argument;
  std::function<void(Arguments&)> spoil;
};

const std::vector<BadCase>& bad_cases() {
  static const std::vector<BadCase> cases{
      {"q has 3 axes", [](Arguments& a) { a.q = a.q[0]; }},
      {"k has 2 axes", [](Arguments& a) { a.k = a.k[0][0]; }},
      {"v has heads 4", [](Arguments& a) { a.v = random({2, 16, 4, 5}); }},
      {"k has heads 3", [](Arguments& a) { a.k = random({2, 16, 3, 6}), a.v = random({2, 16, 3, 5}); }},
      {"k has dtype Double", [](Arguments& a) { a.k = a.k.to(at::kDouble); }},
      {"q has dtype Long", [](Arguments& a) { a.q = a.q.to(at::kLong); }},
      {"v has stride 2", [](Arguments& a) { a.v = random({2, 16, 2, 10}).slice(3, 0, 10, 2); }},
      {"mixing is 4 x 3", [](Arguments& a) { a.mixing = random({4, 3}); }},
      {"mixing has heads 2", [](Arguments& a) { a.mixing = random({2, 4, 4}); }},
      {"mixing has batch 7", [](Arguments& a) { a.mixing = random({7, 4, 4, 4}); }},
      {"mixing is for 9 blocks", [](Arguments& a) { a.mixing = random({9, 9}); }},
      {"partition has 15 tokens", [](Arguments& a) { a.options.partition = Partition::line(15, 4); }},
      {"partition is a grid", [](Arguments& a) { a.options.masking = Masking::token_causal; }},
      {"k_den", [](Arguments& a) { a.options.q_den = a.q; }},
      {"initial_tokens is -1", [](Arguments& a) { a.options.initial_tokens = -1; }},
      {"initial_S is missing", [](Arguments& a) { a.options.initial_tokens = 4; }},
      {"cu_seqlens has device meta",
       [](Arguments& a) { a.options.cu_seqlens = torch::zeros({2}, at::TensorOptions(at::kLong).device(at::kMeta)); }},
      {"mixing has layout Sparse", [](Arguments& a) { a.mixing = a.mixing.to_sparse(); }},
      {"k has layout Sparse", [](Arguments& a) { a.k = a.k.to_sparse(); }},
      {"v has layout Sparse", [](Arguments& a) { a.v = a.v.to_sparse(); }},
      {"q_den has layout Sparse", [](Arguments& a) { a.options.q_den = a.q.to_sparse(), a.options.k_den = a.k; }},
      {"scale", [](Arguments& a) { a.options.scale = INFINITY; }},
  };
  return cases;
}

TEST(Errors, BeginWithTheArgumentAtFault) {
  for (const BadCase& bad : bad_cases()) {
    Arguments a;
    bad.spoil(a);
    try {
      attention(a.q, a.k, a.v, a.mixing, a.options);
      ADD_FAILURE() << bad.argument << ": accepted";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind(bad.argument, 0), 0U) << bad.argument << ": " << error.what();
    }
  }
}

TEST(Errors, OffsetsWithoutValuesCannotSayHowLongAStateIs) {
  Arguments a;
  a.options.partition = Partition::line(16, 4);
  a.options.masking = Masking::token_causal;
  a.options.cu_seqlens = torch::zeros({2}, at::TensorOptions(at::kLong).device(at::kMeta));
  try {
    attention_with_state(a.q, a.k, a.v, a.mixing, a.options);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("cu_seqlens is a tensor on meta without values", 0), 0U) << error.what();
  }
}

TEST(Errors, ANaNInTheMatrixIsRefusedOrComesThroughWhereItCannotBeSeen) {
  Arguments a;
  a.mixing[2][1] = NAN;
  if (test::device().is_cpu()) {
    try {
      attention(a.q, a.k, a.v, a.mixing, a.options);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("mixing[2][1]", 0), 0U) << error.what();
    }
  } else {
    EXPECT_TRUE(attention(a.q, a.k, a.v, a.mixing, a.options).isnan().any().item<bool>());
  }
}

TEST(Errors, TheUnspoiledCallIsAccepted) {
  const Arguments a;
  EXPECT_TRUE(attention(a.q, a.k, a.v, a.mixing, a.options).isfinite().all().item<bool>());
}

TEST(Errors, SecondDerivativesAreRefused) {
  Arguments a;
  a.q.requires_grad_();
  const at::Tensor o = attention(a.q, a.k, a.v, a.mixing, a.options);
  const auto d_q = torch::autograd::grad({o.square().sum()}, {a.q}, {}, true, true)[0];
  EXPECT_THROW(d_q.sum().backward(), c10::Error);
}

}  // namespace
}  // namespace mhla
