// decode_open and decode_step: any config and any counts in memory are refused by name, or run within their memory.
#include "mhla/decode.hpp"

#include <algorithm>

#include "support/choices.hpp"
#include "support/numbers.hpp"

using namespace mhla;
using fuzz::Choices;
using fuzz::Numbers;

namespace {

constexpr std::int64_t kFew = 64;

DecodeConfig config_of(Choices& choices) {
  DecodeConfig c;
  c.dtype = choices.choice<DType>(4);
  c.summary_dtype = choices.rarely() ? choices.choice<DType>(4) : accumulation_type(c.dtype);
  c.batch = choices.size(1, 2);
  c.heads = choices.size(1, 3);
  c.kv_heads = choices.flag() ? c.heads : choices.size(1, 2);
  c.key_dim = choices.size(1, 6);
  c.value_dim = choices.size(1, 6);
  c.block_size = choices.size(1, 5);
  c.mixing_blocks = choices.size(1, 5);
  c.mixing_per_head = choices.flag();
  c.options.feature_map = choices.choice<FeatureMap>(5);
  c.options.normalizer = choices.choice<Normalizer>(3);
  c.options.masking = Masking::token_causal;
  c.options.scale = choices.factor();
  c.options.eps = choices.factor();
  c.beyond = choices.choice<BeyondTrained>(4);
  c.max_tokens = choices.flag() ? choices.size(0, 30) : 0;
  return c;
}

}  // namespace

fuzz::Inputs fuzz::seeds() { return {}; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices choices(fuzz::bytes_of(data, size));
  const DecodeConfig c = config_of(choices);
  const std::initializer_list<std::string_view> names{"batch",      "heads",  "key_dim", "value_dim",  "block_size",
                                                      "mixing",     "scale",  "eps",     "max_tokens", "summary_dtype",
                                                      "normalizer", "beyond", "tokens",  "dtype"};
  if (!fuzz::runs_or_names(names, [&] { validate(c); })) return 0;
  for (const std::int64_t n : {c.batch, c.heads, c.key_dim, c.value_dim, c.block_size, c.mixing_blocks, c.slots()})
    if (n > kFew) return 0;

  const DType wide = accumulation_type(c.dtype);
  const bool normalized = c.options.normalizer != Normalizer::none;
  const std::int64_t kept = c.batch * c.kv_heads * c.slots() * c.key_dim, mixed = c.batch * c.mixed_heads();
  const std::int64_t rows = c.batch * c.kv_heads * c.block_size, folded = c.batch * c.kv_heads * c.key_dim;
  Numbers S = fuzz::filled(c.summary_dtype, kept * c.value_dim, 1),
          z = fuzz::filled(wide, normalized ? kept : 0, 2, true);
  Numbers P(c.summary_dtype, mixed * c.key_dim * c.value_dim), P_z(wide, normalized ? mixed * c.key_dim : 0);
  Numbers diagonal(wide, mixed), folded_S = fuzz::filled(wide, c.folds() ? folded * c.value_dim : 0, 3);
  Numbers folded_z = fuzz::filled(wide, c.folds() && normalized ? folded : 0, 4, true);
  Numbers open_k = fuzz::filled(c.dtype, rows * c.key_dim, 5), open_v = fuzz::filled(c.dtype, rows * c.value_dim, 6);
  std::vector<std::int64_t> seen(static_cast<std::size_t>(c.batch));
  for (std::int64_t& count : seen) count = choices.size(0, 20);
  std::vector<std::int32_t> arrivals(static_cast<std::size_t>(c.batch * (c.kv_heads + 1)));
  const Numbers mixing =
      fuzz::filled(wide, (c.mixing_per_head ? c.heads : 1) * c.mixing_blocks * c.mixing_blocks, 7, true);
  DecodeArgs args;
  args.mixing = mixing.data();
  args.memory = {.S = S.data(),
                 .z = z.data(),
                 .P = P.data(),
                 .P_z = P_z.data(),
                 .diagonal = diagonal.data(),
                 .folded_S = folded_S.data(),
                 .folded_z = folded_z.data(),
                 .k = open_k.data(),
                 .v = open_v.data(),
                 .tokens = seen.data(),
                 .arrivals = arrivals.data()};
  args.run.parallel = &serial();
  if (!fuzz::runs_or_names(names, [&] { decode_open(c, args); })) return 0;

  const std::int64_t tokens = choices.number(0, 7);
  const Numbers q = fuzz::filled(c.dtype, c.batch * tokens * c.heads * c.key_dim, 8);
  const Numbers k = fuzz::filled(c.dtype, c.batch * tokens * c.kv_heads * c.key_dim, 9);
  const Numbers v = fuzz::filled(c.dtype, c.batch * tokens * c.kv_heads * c.value_dim, 10);
  Numbers o(c.dtype, c.batch * tokens * c.heads * c.value_dim);
  args.q = contiguous(q.data(), tokens, c.heads, c.key_dim);
  args.k = contiguous(k.data(), tokens, c.kv_heads, c.key_dim);
  args.v = contiguous(v.data(), tokens, c.kv_heads, c.value_dim);
  args.o = contiguous(o.data(), tokens, c.heads, c.value_dim);
  const std::vector<std::int64_t> before = seen;
  if (fuzz::runs_or_names(names, [&] { decode_step(c, tokens, args); }))
    for (std::size_t b = 0; b < seen.size(); ++b)
      fuzz::expect(seen[b] == before[b] + tokens, "another count of tokens after a step");
  return 0;
}
