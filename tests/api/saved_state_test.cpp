// Saved states: restored they go on as before, on the device that saved them or on the other, and damaged ones are
// refused.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <limits>

#include "api/decode_case.hpp"
#include "api/state_case.hpp"
#include "core/saved_decode.hpp"
#include "support/expect_error.hpp"

namespace mhla {
namespace {

using test::DecodeCase;
using test::DecodeRun;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
constexpr BeyondTrained kAllPolicies[] = {BeyondTrained::error, BeyondTrained::clamp, BeyondTrained::running_mean,
                                          BeyondTrained::interpolate};

TEST(SavedState, RestoredItContinuesBitForBit) {
  for (const BeyondTrained beyond : kAllPolicies)
    for (const DType dtype : {DType::f32, DType::f64})
      for (const std::int64_t at : {0, 3, 8, 9, 12}) {
        StateConfig config = small_config(dtype);
        config.beyond = beyond;
        config.mixing_blocks = beyond == BeyondTrained::error ? 6 : 2;
        const auto check = [&](auto c) {
          auto o = c.poisoned_output(), o_restored = o;
          State state = c.state();
          c.prefill(state, 0, at, o);
          State restored = State::restore(state.serialize());
          EXPECT_EQ(restored.tokens(), at);
          o_restored = o;
          for (std::int64_t token = at; token < 22; ++token) {
            c.step(state, token, o);
            c.step(restored, token, o_restored);
          }
          EXPECT_TRUE(same_bits(o, o_restored)) << name(beyond) << " at " << at;
          EXPECT_EQ(state.serialize(), restored.serialize());
        };
        if (dtype == DType::f32)
          check(Case<float, float>(config, 22));
        else
          check(Case<double, double>(config, 22));
      }
}

// Bytes with one word replaced and the checksum made right again.
Bytes with_word(Bytes bytes, std::size_t offset, std::int64_t word, std::size_t size) {
  std::memcpy(bytes.data() + offset, &word, size);
  const std::uint64_t hash = checksum(std::span(bytes).first(bytes.size() - 8));
  std::memcpy(bytes.data() + bytes.size() - 8, &hash, 8);
  return bytes;
}

struct Damage {
  const char* what;
  std::size_t offset, size;
  std::int64_t word;
};

// Magic 0, format 8, dtype 12, seven sizes 16.., per-head flag 72, feature map 76, normaliser 80, algorithm 84, three
// numbers 88.., policy 112, summary_dtype 116, max_tokens 120, open block 128, tokens of each row 132..
const std::vector<Damage>& damages_of_any_state() {
  static const std::vector<Damage> damages{
      {"magic", 0, 8, 0},
      {"format", 8, 4, 1},
      {"dtype", 12, 4, 9},
      {"dtype of another size", 12, 4, 1},
      {"batch", 16, 8, -1},
      {"batch", 16, 8, 0},
      {"batch", 16, 8, 3},
      {"batch", 16, 8, std::int64_t{1} << 40},
      {"batch", 16, 8, kHuge},
      {"heads", 24, 8, 3},
      {"heads", 24, 8, kHuge},
      {"kv_heads", 32, 8, 0},
      {"kv_heads", 32, 8, 1},
      {"key_dim", 40, 8, 0},
      {"key_dim", 40, 8, kHuge / 2},
      {"value_dim", 48, 8, -19},
      {"block_size", 56, 8, 0},
      {"block_size", 56, 8, -4},
      {"block_size", 56, 8, 1},
      {"block_size", 56, 8, kHuge},
      {"mixing_blocks", 64, 8, std::int64_t{1} << 32},
      {"mixing_blocks", 64, 8, kHuge},
      {"mixing_blocks", 64, 8, 2},
      {"mixing_blocks", 64, 8, -6},
      {"mixing_per_head", 72, 4, 1},
      {"mixing_per_head", 72, 4, 2},
      {"feature_map", 76, 4, 77},
      {"normalizer", 80, 4, 2},
      {"normalizer", 80, 4, 0},
      {"algorithm", 84, 4, 3},
      {"scale", 88, 8, 0x7ff8000000000000},
      {"eps", 96, 8, 0x7ff0000000000000},
      {"beyond", 112, 4, 4},
      {"beyond", 112, 4, 1},
      {"summary_dtype", 116, 4, 9},
      {"summary_dtype", 116, 4, 1},
      {"max_tokens", 120, 8, -1},
      {"max_tokens", 120, 8, 9},
      {"max_tokens", 120, 8, kHuge},
      {"open block", 128, 4, 2},
      {"tokens", 132, 8, -1},
      {"tokens", 132, 8, 25},
      {"tokens", 132, 8, std::int64_t{1} << 40},
      {"tokens", 132, 8, kHuge},
      {"tokens", 132, 8, std::numeric_limits<std::int64_t>::min()},
      {"tokens", 140, 8, 14},
  };
  return damages;
}

// Every flipped bit, every length, and every damage that keeps the checksum right. `restore` throws or not.
template <typename Restore>
void expect_damage_is_refused(const Bytes& good, Restore&& restore) {
  EXPECT_NO_THROW(restore(good));
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(restore(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size))), Error) << size;
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_THROW(restore(longer), Error);
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Bytes flipped = good;
    flipped[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_THROW(restore(flipped), Error) << "bit " << bit;
  }
  for (const Damage& damage : damages_of_any_state())
    EXPECT_THROW(restore(with_word(good, damage.offset, damage.word, damage.size)), Error)
        << damage.what << " = " << damage.word;
}

// Small: two rows of 10 tokens in blocks of 4, trained for 6 blocks.
StateConfig tiny_config() {
  StateConfig config = small_config(DType::f32);
  config.heads = 2;
  config.kv_heads = 2;
  config.key_dim = 2;
  config.value_dim = 3;
  return config;
}

DecodeConfig tiny_decode_config() {
  DecodeConfig config;
  static_cast<StateConfig&>(config) = tiny_config();
  return config;
}

TEST(SavedState, DamagedBytesAreRefused) {
  const Case<float, float> c(tiny_config(), 10);
  std::vector<float> o = c.poisoned_output();
  State state = c.state();
  c.prefill(state, 0, 10, o);
  const Bytes good = state.serialize();
  EXPECT_EQ(State::restore(good).serialize(), good);
  expect_damage_is_refused(good, [](const Bytes& bytes) { return State::restore(bytes); });
  EXPECT_THROW(State::restore(with_word(good, 148, 0x7fc00000, 4)), Error) << "NaN in the matrix";
  EXPECT_THROW(State::restore(with_word(good, 128, 1, 4)), Error) << "rows for a sum";
}

TEST(SavedState, ASumThatIsNotThatOfItsBlocksIsRefused) {
  for (const BeyondTrained beyond : {BeyondTrained::clamp, BeyondTrained::running_mean})
    for (const std::int64_t at :
         {0, 3, 6, 10}) {  // of 6 trained blocks of 4 tokens: no block is known by the sum alone
      StateConfig config = tiny_config();
      config.beyond = beyond;
      const Case<float, float> c(config, 10);
      std::vector<float> o = c.poisoned_output();
      State state = c.state();
      c.prefill(state, 0, at, o);
      const Bytes good = state.serialize();
      EXPECT_EQ(State::restore(good).serialize(), good);
      const std::size_t sum = 132 + 8 * 2 + 6 * 6 * sizeof(float);
      EXPECT_THROW(State::restore(with_word(good, sum, 0x4000000000000000, 8)), Error) << name(beyond) << " at " << at;
    }
}

// The memory of a decoding state on the host, and what reads saved bytes into it.
class Loaded {
 public:
  explicit Loaded(const Bytes& bytes) {
    auto [state, in] = open_saved_state(bytes);
    config = decode_config_of(state);
    const DecodeConfig& c = config;
    const std::size_t T = element_size(accumulation_type(c.dtype)), A = element_size(c.summary_dtype);
    const auto make = [&](std::int64_t elements, std::size_t size) {
      return parts_.emplace_back(static_cast<std::size_t>(elements) * size).data();
    };
    const std::int64_t groups = c.batch * c.kv_heads, S = c.key_dim * c.value_dim;
    mixing = make((c.mixing_per_head ? c.heads : 1) * c.mixing_blocks * c.mixing_blocks, T);
    memory.S = make(groups * c.slots() * S, A);
    memory.z = make(groups * c.slots() * c.key_dim, T);
    memory.folded_S = make(groups * S, T);
    memory.folded_z = make(groups * c.key_dim, T);
    memory.k = make(groups * c.block_size * c.key_dim, element_size(c.dtype));
    memory.v = make(groups * c.block_size * c.value_dim, element_size(c.dtype));
    tokens_.resize(static_cast<std::size_t>(c.batch));
    memory.tokens = tokens_.data();
    load_decode(state, in, mixing, memory);
  }
  Bytes saved() const { return save_decode(config, mixing, memory); }

  DecodeConfig config;
  void* mixing = nullptr;
  DecodeMemory memory;

 private:
  std::deque<Bytes> parts_;
  std::vector<std::int64_t> tokens_;
};

Bytes saved(DecodeRun& run) {
  const DecodeArgs args = run.args(0);
  return save_decode(run.config(), args.mixing, args.memory);
}

TEST(SavedState, DamagedBytesOfADecodingStateAreRefused) {
  const DecodeCase c(tiny_decode_config(), 10);
  DecodeRun run(c);
  run.step(10);
  const Bytes good = saved(run);
  EXPECT_EQ(Loaded(good).saved(), good);
  expect_damage_is_refused(good, [](const Bytes& bytes) { return Loaded(bytes); });
  EXPECT_THROW(Loaded(with_word(good, 128, 0, 4)), Error) << "a sum for rows";
  EXPECT_THROW(Loaded(with_word(good, 56, (1 << 16) + 1, 8)), Error) << "block_size";
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}})
    expect_error([&] { Loaded(Bytes(size)); }, {"bytes are not a saved state", "MHLASTAT"});
  expect_error([&] { Loaded(with_word(good, 132, 25, 8)); }, {"25 as the tokens of batch row 0", "0 to 24"});
}

TEST(SavedState, DecodingStatesKeepEveryArray) {
  for (const BeyondTrained beyond : kAllPolicies)
    for (const DType summary : {DType::f32, DType::bf16})
      for (const std::int64_t tokens : {0, 3, 8, 9, 20, 24}) {
        DecodeConfig config = tiny_decode_config();
        config.beyond = beyond;
        config.mixing_blocks = beyond == BeyondTrained::error ? 6 : 2;
        config.max_tokens = beyond == BeyondTrained::interpolate ? 24 : 0;
        config.summary_dtype = summary;
        SCOPED_TRACE(test::describe(config) + ", " + std::to_string(tokens) + " tokens");
        const DecodeCase c(config, 24);
        DecodeRun run(c);
        run.step(tokens);
        const Bytes bytes = saved(run);
        EXPECT_EQ(Loaded(bytes).saved(), bytes);
        EXPECT_EQ(Loaded(bytes).memory.tokens[1], tokens);
      }
}

TEST(SavedState, ADecodingStateGoesOnOnTheCpu) {
  for (const BeyondTrained beyond : kAllPolicies)
    for (const DType dtype : {DType::f64, DType::f32})
      for (const std::int64_t max_tokens : {0, 8, 24})
        for (const std::int64_t at : {0, 3, 8, 9, 20}) {
          DecodeConfig config = test::decode_config(dtype);
          config.device = Device::cpu;
          config.beyond = beyond;
          config.mixing_blocks = beyond == BeyondTrained::error ? 6 : 2;
          config.max_tokens = max_tokens;
          if ((beyond == BeyondTrained::interpolate && max_tokens == 0) || (max_tokens > 0 && at > max_tokens))
            continue;
          SCOPED_TRACE(test::describe(config) + ", at " + std::to_string(at) + " of " + std::to_string(max_tokens));
          const DecodeCase c(config, 24);
          DecodeRun run(c);
          run.step(at);
          State state = State::restore(saved(run));
          EXPECT_EQ(state.tokens(), at);
          test::TokenTensor o(dtype, config.batch, 24, config.heads, config.value_dim);
          const auto from = [&](auto view) {
            using Byte = std::conditional_t<std::is_same_v<decltype(view.data), void*>, std::byte*, const std::byte*>;
            view.data =
                static_cast<Byte>(view.data) + at * view.token_stride * static_cast<std::int64_t>(element_size(dtype));
            return view;
          };
          state.prefill(24 - at, from(c.q.view()), from(c.k.view()), from(c.v.view()), from(o.view()));
          const std::vector<double> expected = c.one_call(), actual = o.values();
          const std::int64_t row = config.heads * config.value_dim;
          std::vector<double> tail, expected_tail;
          for (std::int64_t batch = 0; batch < config.batch; ++batch)
            for (std::int64_t n = (batch * 24 + at) * row; n < (batch + 1) * 24 * row; ++n) {
              tail.push_back(actual[static_cast<std::size_t>(n)]);
              expected_tail.push_back(expected[static_cast<std::size_t>(n)]);
            }
          EXPECT_LE(test::relative_rms(tail, expected_tail), dtype == DType::f64 ? 1e-10 : 1e-5);
        }
}

TEST(SavedState, AStateOfTheCpuIsDecodedFromTheEndOfABlock) {
  for (const BeyondTrained beyond : {BeyondTrained::error, BeyondTrained::clamp, BeyondTrained::running_mean})
    for (const std::int64_t at : {0, 4, 8, 20}) {
      StateConfig config = tiny_config();
      config.dtype = DType::f64;  // in which decoding keeps its sums too
      config.beyond = beyond;
      config.mixing_blocks = beyond == BeyondTrained::error ? 6 : 2;
      const Case<double, double> c(config, 20);
      std::vector<double> o = c.poisoned_output();
      State state = c.state();
      c.prefill(state, 0, at, o);
      const Bytes bytes = state.serialize();
      const Loaded loaded(bytes);
      EXPECT_EQ(loaded.memory.tokens[0], at);
      EXPECT_EQ(State::restore(loaded.saved()).serialize(), bytes) << name(beyond) << " at " << at;
    }
  const Case<float, float> c(tiny_config(), 10);
  std::vector<float> o = c.poisoned_output();
  State state = c.state();
  c.prefill(state, 0, 10, o);
  expect_error([&] { Loaded(state.serialize()); }, {"10 tokens", "saved on the CPU", "end of a block of 4"});
}

TEST(SavedState, RowsAtDifferentTokensAreDecodedButNotStreamed) {
  const DecodeCase c(tiny_decode_config(), 10);
  DecodeRun run(c);
  run.step(9);
  run.args(0).memory.tokens[1] = 6;
  const Bytes bytes = saved(run);
  EXPECT_EQ(Loaded(bytes).saved(), bytes);
  expect_error([&] { State::restore(bytes); }, {"rows at tokens 6 to 9"});
  run.args(0).memory.tokens[1] = 25;
  expect_error([&] { saved(run); }, {"25 as the tokens of batch row 1"});
}

}  // namespace
}  // namespace mhla
