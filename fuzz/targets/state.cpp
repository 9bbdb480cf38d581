// Bytes of a saved state, also with their checksum put right: what is accepted is saved as the same bytes again and
// goes on. Those of a decoding state, which keeps the rows of the open block, are saved as those of a stream.
#include "mhla/state.hpp"

#include <algorithm>

#include "core/saved_state.hpp"
#include "support/numbers.hpp"

using namespace mhla;
using fuzz::Numbers;

namespace {

// The last eight bytes are the checksum of all before them.
fuzz::Bytes with_checksum(fuzz::Bytes bytes) {
  if (bytes.size() < sizeof(std::uint64_t)) return bytes;
  const std::size_t end = bytes.size() - sizeof(std::uint64_t);
  const std::uint64_t sum = checksum(std::span(bytes).first(end));
  std::memcpy(bytes.data() + end, &sum, sizeof sum);
  return bytes;
}

// Some tokens more.
void go_on(State& state, std::int64_t tokens) {
  const StateConfig c = state.config();
  if (c.batch * c.heads * std::max(c.key_dim, c.value_dim) > 1 << 16) return;
  const Numbers q = fuzz::filled(c.dtype, c.batch * tokens * c.heads * c.key_dim, 1);
  const Numbers k = fuzz::filled(c.dtype, c.batch * tokens * c.kv_heads * c.key_dim, 2);
  const Numbers v = fuzz::filled(c.dtype, c.batch * tokens * c.kv_heads * c.value_dim, 3);
  Numbers o(c.dtype, c.batch * tokens * c.heads * c.value_dim);
  fuzz::runs_or_names({"tokens", "blocks", "mixing"}, [&] {
    state.prefill(tokens, contiguous(q.data(), tokens, c.heads, c.key_dim),
                  contiguous(k.data(), tokens, c.kv_heads, c.key_dim),
                  contiguous(v.data(), tokens, c.kv_heads, c.value_dim),
                  contiguous(o.data(), tokens, c.heads, c.value_dim), &serial());
  });
}

void judge(const fuzz::Bytes& bytes) {
  fuzz::runs_or_names({"bytes", "state", "batch", "heads", "dim", "block_size", "mixing", "scale", "eps",
                       "summary_dtype", "max_tokens", "is not one of"},
                      [&] {
                        State state = State::restore(bytes);
                        const fuzz::Bytes saved = state.serialize();
                        const bool of_stream = open_saved_state(bytes).first.open == OpenBlock::summary;
                        fuzz::expect(!of_stream || saved == bytes, "a restored state is saved as other bytes");
                        fuzz::expect(State::restore(saved).serialize() == saved,
                                     "a saved state is not saved as the same bytes again");
                        go_on(state, 1);
                        go_on(state, 3);
                      });
}

}  // namespace

fuzz::Inputs fuzz::seeds() {
  Inputs inputs;
  for (const BeyondTrained beyond :
       {BeyondTrained::error, BeyondTrained::clamp, BeyondTrained::running_mean, BeyondTrained::interpolate})
    for (const DType dtype : {DType::f32, DType::f64}) {
      StateConfig config;
      config.dtype = dtype;
      config.heads = 2;
      config.key_dim = 3;
      config.value_dim = 2;
      config.block_size = 2;
      config.mixing_blocks = beyond == BeyondTrained::error ? 5 : 2;
      config.beyond = beyond;
      config.options.masking = Masking::token_causal;
      if (dtype == DType::f64) config.options.normalizer = Normalizer::none;
      State state(config, filled(dtype, config.mixing_blocks * config.mixing_blocks, 5, true).data());
      go_on(state, 5);
      inputs.push_back(state.serialize());
    }
  return inputs;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::Bytes bytes = fuzz::copy_of(fuzz::bytes_of(data, size));
  judge(bytes);
  judge(with_checksum(bytes));
  return 0;
}
