// States of language models: pieces equal the whole, rows are independent, bytes come back or are refused.
#include <gtest/gtest.h>

#include <random>

#include "models/lm/lm_state_bytes.hpp"
#include "models/small_lm.hpp"
#include "support/expect_error.hpp"

namespace mhla::models {
namespace {

using testing::all_small_lms;
using testing::description;
using testing::random_ids;
using testing::relative_error;
using testing::small_lm;
using testing::small_lm_options;

// Logits of every token, of a prefill and then one token after the other.
at::Tensor in_pieces(Lm& model, const at::Tensor& ids, std::int64_t prefilled) {
  LmState state = model.new_state(ids.size(0));
  std::vector<at::Tensor> logits;
  if (prefilled > 0) logits.push_back(model.logits(model.extend(state, ids.slice(1, 0, prefilled))));
  for (std::int64_t token = prefilled; token < ids.size(1); ++token)
    logits.push_back(model.step(state, ids.select(1, token)).unsqueeze(1));
  return at::cat(logits, 1);
}

TEST(LmState, TokenByTokenEqualsTheWholeForEverySplit) {
  const torch::NoGradGuard no_gradient;
  for (const LmOptions& options : all_small_lms()) {
    const auto model = small_lm(options);
    const at::Tensor ids = random_ids(2, 27), whole = model->forward(ids);
    for (const std::int64_t split : {0, 1, 7, 8, 9, 15, 16, 17, 24, 26, 27})
      EXPECT_LT(relative_error(in_pieces(*model, ids, split), whole), 1e-5) << description(options) << " " << split;
  }
}

TEST(LmState, PiecesOfAnyLengthEqualTheWholeBeyondTheTrainedBlocks) {
  const torch::NoGradGuard no_gradient;
  std::mt19937 random(1);
  for (const char* beyond : {"clamp", "running-mean", "interpolate"})
    for (LmOptions options : {small_lm_options({"mhla", "linear"}), small_lm_options({"mhla", "softmax"})}) {
      options.beyond = beyond;
      const auto model = small_lm(options);
      const at::Tensor ids = random_ids(1, 75), whole = model->forward(ids);
      for (int trial = 0; trial < 3; ++trial) {
        LmState state = model->new_state(1);
        std::vector<at::Tensor> logits;
        for (std::int64_t begin = 0, length = 0; begin < 75; begin += length) {
          length = std::min<std::int64_t>(1 + static_cast<std::int64_t>(random() % 30), 75 - begin);
          logits.push_back(model->logits(model->extend(state, ids.narrow(1, begin, length))));
        }
        EXPECT_LT(relative_error(at::cat(logits, 1), whole), 1e-5) << description(options);
      }
    }
}

TEST(LmState, AFullMatrixIsAnErrorThatNamesTheWayOut) {
  const auto model = small_lm(small_lm_options());
  LmState state = model->new_state(1);
  model->prefill(state, random_ids(1, 32));
  expect_error([&] { model->step(state, random_ids(1, 1)[0]); }, {"5 blocks", "beyond may be clamp"});
  EXPECT_EQ(state.seen().front(), 32);
}

TEST(LmState, ItsSizeIsConstantWhereOldBlocksAreASum) {
  LmOptions options = small_lm_options({"mhla", "gla"});
  options.beyond = "clamp";
  const auto model = small_lm(options);
  LmState state = model->new_state(1);
  const std::size_t before = state.bytes();
  model->prefill(state, random_ids(1, 300));
  EXPECT_EQ(state.bytes(), before);
}

// Prompts of 3, 17 and 8 tokens, each alone, and in one batch.
TEST(LmState, PromptsOfDifferentLengthsGoOnTogether) {
  const torch::NoGradGuard no_gradient;
  for (const LmOptions& options : all_small_lms()) {
    const auto model = small_lm(options);
    const at::Tensor ids = random_ids(3, 27);
    const std::vector<std::int64_t> lengths = {3, 17, 8};
    std::vector<at::Tensor> prompts;
    std::vector<LmState> alone;
    for (std::int64_t row = 0; row < 3; ++row)
      prompts.push_back(ids[row].slice(0, 0, lengths[static_cast<std::size_t>(row)]));
    LmState state = model->new_state(3);
    at::Tensor logits = model->prefill(state, prompts);
    EXPECT_EQ(state.seen(), lengths);
    for (std::int64_t more = 0; more < 10; ++more) {
      std::vector<at::Tensor> next;
      for (std::int64_t row = 0; row < 3; ++row) {
        const std::int64_t seen = lengths[static_cast<std::size_t>(row)] + more;
        const at::Tensor expected = model->forward(ids.narrow(0, row, 1).slice(1, 0, seen))[0][seen - 1];
        EXPECT_LT(relative_error(logits[row], expected), 1e-5) << description(options) << " " << row << " " << more;
        next.push_back(ids[row][seen]);
      }
      logits = model->step(state, at::stack(next));
    }
    const at::Tensor longer = random_ids(3, 4);  // several tokens of rows that differ
    const at::Tensor hidden = model->extend(state, longer);
    EXPECT_EQ(state.seen(), (std::vector<std::int64_t>{17, 31, 22}));
    const at::Tensor first = at::cat({ids[0].slice(0, 0, 13), longer[0]}).unsqueeze(0);
    EXPECT_LT(relative_error(hidden[0], model->hidden(first)[0].slice(0, 13)), 1e-5) << description(options);
  }
}

// On the CPU a sequence is the same to the bit in any batch.
TEST(LmState, AStepOfARowHasTheBitsItHasAlone) {
  const torch::NoGradGuard no_gradient;
  for (const LmOptions& options : all_small_lms()) {
    const auto model = small_lm(options);
    for (const std::int64_t rows : {2, 5, 33}) {
      std::vector<LmState> alone;
      for (std::int64_t row = 0; row < rows; ++row) {
        alone.push_back(model->new_state(1));
        model->prefill(alone.back(), random_ids(1, 1 + 5 * row % 23, static_cast<std::uint64_t>(row)));
      }
      LmState together = LmState::joined(alone);
      for (std::uint64_t token = 0; token < 9; ++token) {
        const at::Tensor ids = random_ids(1, rows, 100 + token)[0], logits = model->step(together, ids);
        for (std::int64_t row = 0; row < rows; ++row)
          ASSERT_TRUE(at::equal(model->step(alone[static_cast<std::size_t>(row)], ids.narrow(0, row, 1)),
                                logits.narrow(0, row, 1)))
              << description(options) << ": row " << row << " of " << rows;
      }
    }
  }
}

TEST(LmState, RowsForkPickAndJoin) {
  const torch::NoGradGuard no_gradient;
  for (const LmOptions& options : all_small_lms()) {
    const auto model = small_lm(options);
    const at::Tensor ids = random_ids(2, 22);
    LmState state = model->new_state(2), other = model->new_state(1);
    model->prefill(state, ids.slice(1, 0, 10));
    model->prefill(other, ids.slice(0, 0, 1));
    LmState fork = state.fork();
    model->step(fork, random_ids(1, 2)[0]);  // nothing to `state`
    const std::vector<std::int64_t> picked = {1, 0, 1};
    const std::vector<LmState> parts = {state.rows(picked), other};
    LmState joined = LmState::joined(parts);
    EXPECT_EQ(joined.seen(), (std::vector<std::int64_t>{10, 10, 10, 22}));
    const at::Tensor next = torch::tensor({4, 5, 6, 7}, at::kLong), logits = model->step(joined, next);
    const auto expected = [&](std::int64_t row, std::int64_t seen, std::int64_t id) {
      const at::Tensor all = at::cat({ids[row].slice(0, 0, seen), torch::tensor({id})});
      return model->forward(all.unsqueeze(0))[0][seen];
    };
    EXPECT_LT(relative_error(logits[0], expected(1, 10, 4)), 1e-5) << description(options);
    EXPECT_LT(relative_error(logits[1], expected(0, 10, 5)), 1e-5) << description(options);
    EXPECT_LT(relative_error(logits[2], expected(1, 10, 6)), 1e-5) << description(options);
    EXPECT_LT(relative_error(logits[3], expected(0, 22, 7)), 1e-5) << description(options);
  }
  const auto model = small_lm(small_lm_options());
  const LmState state = model->new_state(2);
  expect_error([&] { static_cast<void>(state.row(2)); }, {"row 2 is not there", "has 2"});
  expect_error([&] { static_cast<void>(model->new_state(0)); }, {"batch is 0"});
  const auto gla = small_lm(small_lm_options({"gla"}));
  const std::vector<LmState> strangers = {state, gla->new_state(1)};
  expect_error([&] { static_cast<void>(LmState::joined(strangers)); }, {"different models"});
}

TEST(LmState, ComesBackFromItsBytesAndGoesOn) {
  const torch::NoGradGuard no_gradient;
  for (const LmOptions& options : all_small_lms()) {
    const auto model = small_lm(options);
    LmState state = model->new_state(2);
    model->prefill(state, std::vector{random_ids(1, 13)[0], random_ids(1, 21)[0]});
    LmState restored = restore_state(*model, save_state(*model, state));
    EXPECT_EQ(restored.seen(), state.seen());
    for (int token = 0; token < 9; ++token) {
      const at::Tensor next = random_ids(1, 2, static_cast<std::uint64_t>(token))[0];
      EXPECT_TRUE(at::equal(model->step(restored, next), model->step(state, next))) << description(options);
    }
  }
}

TEST(LmState, BytesOfAnotherModelAreRefused) {
  const auto model = small_lm(small_lm_options());
  LmState state = model->new_state(1);
  model->prefill(state, random_ids(1, 10));
  const auto bytes = save_state(*model, state);
  const auto other = small_lm(small_lm_options());
  EXPECT_EQ(fingerprint(*model), fingerprint(*other));
  static_cast<void>(restore_state(*other, bytes));
  {
    const torch::NoGradGuard no_gradient;
    other->named_parameters()["model.norm.weight"].add_(0.01);
  }
  expect_error([&] { static_cast<void>(restore_state(*other, bytes)); }, {"it is of the model " + fingerprint(*model)});
  LmOptions clamped = small_lm_options();
  clamped.beyond = "clamp";
  expect_error([&] { static_cast<void>(restore_state(*small_lm(clamped), bytes)); }, {"it is of the model"});
}

TEST(LmState, DamagedBytesAreRefused) {
  const auto model = small_lm(small_lm_options({"mhla", "softmax"}));
  LmState state = model->new_state(1);
  model->prefill(state, random_ids(1, 10));
  const auto bytes = save_state(*model, state);
  for (const std::size_t place : {std::size_t{0}, std::size_t{9}, bytes.size() / 2, bytes.size() - 1}) {
    auto damaged = bytes;
    damaged[place] ^= std::byte{4};
    expect_error([&] { static_cast<void>(restore_state(*model, damaged)); }, {"saved state", "checksum is wrong"});
  }
  for (const std::size_t length : {std::size_t{0}, std::size_t{3}, std::size_t{100}, bytes.size() - 1})
    expect_error([&] { static_cast<void>(restore_state(*model, std::span(bytes).first(length))); }, {"saved state"});
}

}  // namespace
}  // namespace mhla::models
