// Streaming: any config of State is refused by name or made; then tokens in pieces, forks and saved copies, each output
// against the formula in double.
#include <algorithm>
#include <optional>

#include "core/validate.hpp"
#include "mhla/state.hpp"
#include "support/choices.hpp"
#include "support/numbers.hpp"

using namespace mhla;
using fuzz::Choices;
using fuzz::Numbers;

namespace {

constexpr std::int64_t kFew = 40;
const std::initializer_list<std::string_view> kNames{"batch",      "heads", "key_dim", "value_dim",
                                                     "block_size", "scale", "eps",     "mixing"};

StateConfig config_of(Choices& choices) {
  StateConfig c;
  c.dtype = choices.choice<DType>(4);
  c.batch = choices.size(0, 2);
  c.heads = choices.size(1, 3);
  c.kv_heads = choices.flag() ? c.heads : choices.size(1, 2);
  c.key_dim = choices.size(1, 7);
  c.value_dim = choices.size(1, 7);
  c.block_size = choices.size(1, 6);
  c.mixing_blocks = choices.number(1, 6);
  c.mixing_per_head = choices.flag();
  c.options.feature_map = choices.choice<FeatureMap>(5);
  c.options.normalizer = choices.choice<Normalizer>(2);
  c.options.masking = Masking::token_causal;
  c.options.scale = choices.factor();
  c.options.eps = choices.factor();
  c.options.feature_eps = choices.flag() ? 0 : choices.factor();
  c.beyond = choices.choice<BeyondTrained>(3);  // `interpolate` has no row of its own to compare with
  return c;
}

bool is_small(const StateConfig& c) {
  return c.batch <= kFew && c.heads <= kFew && c.key_dim <= kFew && c.value_dim <= kFew;
}

// All tokens of the stream, and the outputs that have come.
class Stream {
 public:
  explicit Stream(const StateConfig& config) : c_(config) {
    q_ = fuzz::filled(c_.dtype, kFew * c_.batch * c_.heads * c_.key_dim, 1);
    k_ = fuzz::filled(c_.dtype, kFew * c_.batch * c_.kv_heads * c_.key_dim, 2);
    v_ = fuzz::filled(c_.dtype, kFew * c_.batch * c_.kv_heads * c_.value_dim, 3);
    mixing_ = fuzz::filled(accumulation_type(c_.dtype),
                           (c_.mixing_per_head ? c_.heads : 1) * c_.mixing_blocks * c_.mixing_blocks, 4, true);
  }

  const void* mixing() const { return mixing_.data(); }

  // The next tokens: prefill, or step where there is one.
  void feed(State& state, std::int64_t tokens, bool step) {
    const Numbers q = part(q_, tokens, c_.heads * c_.key_dim), k = part(k_, tokens, c_.kv_heads * c_.key_dim);
    const Numbers v = part(v_, tokens, c_.kv_heads * c_.value_dim);
    Numbers o(c_.dtype, c_.batch * tokens * c_.heads * c_.value_dim);
    const auto views = [&](const auto& call) {
      call(contiguous(q.data(), tokens, c_.heads, c_.key_dim), contiguous(k.data(), tokens, c_.kv_heads, c_.key_dim),
           contiguous(v.data(), tokens, c_.kv_heads, c_.value_dim),
           contiguous(o.data(), tokens, c_.heads, c_.value_dim));
    };
    const bool room =
        c_.beyond != BeyondTrained::error || tokens == 0 || (seen_ + tokens - 1) / c_.block_size < c_.mixing_blocks;
    const bool ran = fuzz::runs_or_names({"tokens", "blocks", "mixing"}, [&] {
      if (step)
        views([&](auto... x) { state.step(x..., &serial()); });
      else
        views([&](auto... x) { state.prefill(tokens, x..., &serial()); });
    });
    fuzz::expect(ran == room, ran ? "more tokens than the matrix is for" : "tokens that fit were refused");
    if (!ran) return;
    for (std::int64_t b = 0; b < c_.batch; ++b)
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t h = 0; h < c_.heads; ++h) check(o, b, t, h, tokens);
    seen_ += tokens;
    fuzz::expect(state.tokens() == seen_, "another count of tokens");
  }
  std::int64_t seen() const { return seen_; }

 private:
  // Tokens are kept [token, batch, ...]: a piece of them as [batch, token, ...].
  Numbers part(const Numbers& all, std::int64_t tokens, std::int64_t width) const {
    Numbers piece(c_.dtype, c_.batch * tokens * width);
    for (std::int64_t b = 0; b < c_.batch; ++b)
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t i = 0; i < width; ++i)
          piece.set((b * tokens + t) * width + i, all[((seen_ + t) * c_.batch + b) * width + i]);
    return piece;
  }
  double weight(std::int64_t h, std::int64_t block, std::int64_t source) const {
    const std::int64_t M = c_.mixing_blocks, matrix = c_.mixing_per_head ? h * M * M : 0;
    if (block < M) return mixing_[matrix + block * M + source];
    if (c_.beyond == BeyondTrained::running_mean) return 1.0 / static_cast<double>(block + 1);
    return mixing_[matrix + (M - 1) * M + std::max<std::int64_t>(0, M - 1 - (block - source))];
  }
  double phi(const Numbers& x, std::int64_t i) const {
    return fuzz::feature(c_.options.feature_map, x[i]) + c_.options.feature_eps;
  }

  void check(const Numbers& o, std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t tokens) const {
    for (const double x : {c_.options.scale, c_.options.eps, c_.options.feature_eps})
      if (std::abs(x) > 1e37) return;
    const std::int64_t g = h / (c_.heads / c_.kv_heads), now = seen_ + t;
    const auto row = [&](std::int64_t s, std::int64_t heads, std::int64_t head) {
      return (s * c_.batch + b) * heads + head;
    };
    for (std::int64_t e = 0; e < c_.value_dim; ++e) {
      fuzz::Sum above, below;
      for (std::int64_t s = 0; s <= now; ++s) {
        const double m = c_.options.scale * weight(h, now / c_.block_size, s / c_.block_size);
        for (std::int64_t d = 0; d < c_.key_dim; ++d) {
          const double term =
              m * phi(q_, row(now, c_.heads, h) * c_.key_dim + d) * phi(k_, row(s, c_.kv_heads, g) * c_.key_dim + d);
          below.add(term);
          above.add(term * v_[row(s, c_.kv_heads, g) * c_.value_dim + e]);
        }
      }
      double eps = c_.options.eps;
      if (c_.options.normalizer == Normalizer::none) below = {1, 0}, eps = 0;
      const double actual = o[((b * tokens + t) * c_.heads + h) * c_.value_dim + e];
      if (!fuzz::agrees(actual, above, below, eps, c_.dtype))
        fuzz::fail("token " + std::to_string(now) + " is " + std::to_string(actual) + ", not " +
                   std::to_string(above.value / (below.value + eps)));
    }
  }

  StateConfig c_;
  Numbers q_, k_, v_, mixing_;
  std::int64_t seen_ = 0;
};

}  // namespace

fuzz::Inputs fuzz::seeds() { return {}; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices choices(fuzz::bytes_of(data, size));
  const StateConfig config = config_of(choices);
  if (!fuzz::runs_or_names(kNames, [&] { validate(config); }) || !is_small(config)) return 0;
  Stream stream(config);
  std::optional<State> state;
  if (!fuzz::runs_or_names(kNames, [&] { state.emplace(config, stream.mixing()); })) return 0;
  for (int piece = 0; piece < 12; ++piece) {
    const std::int64_t kind = choices.number(0, 7);
    const std::int64_t tokens = kind < 3 ? 1 : kind < 6 ? choices.number(0, 9) : 0;
    if (stream.seen() + tokens > kFew) break;
    if (kind == 6)
      state = state->fork();
    else if (kind == 7)
      state = State::restore(state->serialize());
    else
      stream.feed(*state, tokens, kind < 3);
  }
  return 0;
}
