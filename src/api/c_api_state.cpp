// The C interface, second half: streaming.
#include <cstring>
#include <memory>
#include <utility>

#include "api/c_api.hpp"

using namespace mhla;
using namespace mhla::c_api;

struct mhla_state {
  State state;
};

namespace {

StateConfig to_config(const mhla_state_config& c) {
  return {.dtype = to_enum<DType>(c.dtype, "dtype"),
          .batch = c.batch,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .key_dim = c.key_dim,
          .value_dim = c.value_dim,
          .block_size = c.block_size,
          .mixing_blocks = c.mixing_blocks,
          .mixing_per_head = c.mixing_per_head,
          .options = to_options(c.options),
          .beyond = to_enum<BeyondTrained>(c.beyond, "beyond")};
}

mhla_state* handle(State state) { return std::make_unique<mhla_state>(mhla_state{std::move(state)}).release(); }

}  // namespace

extern "C" {

mhla_state_config mhla_default_state_config(void) {
  const StateConfig defaults;
  mhla_state_config config{};
  config.dtype = static_cast<mhla_dtype>(defaults.dtype);
  config.batch = defaults.batch;
  config.heads = defaults.heads;
  config.kv_heads = defaults.kv_heads;
  config.block_size = defaults.block_size;
  config.options = from_options(defaults.options);
  config.options.masking = MHLA_MASKING_TOKEN_CAUSAL;
  config.beyond = static_cast<mhla_beyond>(defaults.beyond);
  return config;
}

mhla_status mhla_state_create(const mhla_state_config* config, const void* mixing, mhla_state** state) {
  return guarded([&] {
    required(state, "state");
    *state = handle(State(to_config(*required(config, "config")), mixing));
  });
}

void mhla_state_destroy(mhla_state* state) { std::unique_ptr<mhla_state>{state}.reset(); }

mhla_status mhla_state_prefill(mhla_state* state, int64_t tokens, mhla_const_tensor q, mhla_const_tensor k,
                               mhla_const_tensor v, mhla_tensor o, const mhla_parallel* parallel) {
  return guarded([&] {
    const BorrowedParallel borrowed(parallel);
    required(state, "state")
        ->state.prefill(tokens, to_tensor(q), to_tensor(k), to_tensor(v), to_tensor(o), borrowed.get());
  });
}

mhla_status mhla_state_step(mhla_state* state, mhla_const_tensor q, mhla_const_tensor k, mhla_const_tensor v,
                            mhla_tensor o, const mhla_parallel* parallel) {
  return guarded([&] {
    const BorrowedParallel borrowed(parallel);
    required(state, "state")->state.step(to_tensor(q), to_tensor(k), to_tensor(v), to_tensor(o), borrowed.get());
  });
}

mhla_status mhla_state_fork(const mhla_state* state, mhla_state** fork) {
  return guarded([&] {
    required(fork, "fork");
    *fork = handle(required(state, "state")->state.fork());
  });
}

mhla_status mhla_state_serialize(const mhla_state* state, void* buffer, size_t* size) {
  return guarded([&] {
    required(size, "size");
    const std::vector<std::byte> bytes = required(state, "state")->state.serialize();
    if (buffer != nullptr) {
      if (*size < bytes.size())
        throw Error("size is " + std::to_string(*size) + "; the state needs " + std::to_string(bytes.size()) +
                    " bytes");
      std::memcpy(buffer, bytes.data(), bytes.size());
    }
    *size = bytes.size();
  });
}

mhla_status mhla_state_restore(const void* bytes, size_t size, mhla_state** state) {
  return guarded([&] {
    required(state, "state");
    *state = handle(State::restore(std::span(static_cast<const std::byte*>(required(bytes, "bytes")), size)));
  });
}

int64_t mhla_state_tokens(const mhla_state* state) {
  int64_t tokens = -1;
  guarded([&] { tokens = required(state, "state")->state.tokens(); });
  return tokens;
}

size_t mhla_state_bytes(const mhla_state* state) {
  size_t bytes = 0;
  guarded([&] { bytes = required(state, "state")->state.bytes(); });
  return bytes;
}

}  // extern "C"
