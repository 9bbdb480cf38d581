// Decoding states as bytes: summaries are in slots in memory, in the order of blocks in bytes.
#include "core/saved_decode.hpp"

#include <string>

#include "core/validate.hpp"

namespace mhla {
namespace {

std::size_t as_size(std::int64_t count) { return static_cast<std::size_t>(count); }

// Where the arrays of one batch row lie in memory, as bytes.
class Rows {
 public:
  Rows(const SavedState& state, const DecodeConfig& config, const DecodeMemory& memory)
      : state_(state), config_(config), memory_(memory), slots_(config.slots()) {}

  // Visits the pieces of memory that hold block `b` of a batch row, in the order of the format.
  template <typename Visit>
  void block(std::int64_t row, std::int64_t b, Visit&& visit) const {
    const std::int64_t slot = b % slots_;
    const auto pieces = [&](void* data, std::int64_t elements, DType type) {
      const std::size_t bytes = as_size(elements) * element_size(type);
      for (std::int64_t head = 0; head < config_.kv_heads; ++head)
        visit(std::span(static_cast<std::byte*>(data) + as_size(group(row, head) * slots_ + slot) * bytes, bytes));
    };
    pieces(memory_.S, config_.key_dim * config_.value_dim, config_.summary_dtype);
    if (state_.normalized()) pieces(memory_.z, config_.key_dim, accumulation_type(config_.dtype));
  }

  // Likewise the tokens of its open block.
  template <typename Visit>
  void open(std::int64_t row, std::int64_t filled, Visit&& visit) const {
    for (const auto& [data, dim] : {std::pair{memory_.k, config_.key_dim}, {memory_.v, config_.value_dim}}) {
      const std::size_t bytes = as_size(dim) * element_size(config_.dtype);
      for (std::int64_t head = 0; head < config_.kv_heads; ++head)
        visit(std::span(static_cast<std::byte*>(data) + as_size(group(row, head) * config_.block_size) * bytes,
                        as_size(filled) * bytes));
    }
  }

 private:
  std::int64_t group(std::int64_t row, std::int64_t head) const { return row * config_.kv_heads + head; }

  const SavedState& state_;
  const DecodeConfig& config_;
  const DecodeMemory& memory_;
  std::int64_t slots_;
};

// Visits the folded sums, (pointer, elements) of S and z, in the accumulation type.
template <typename Visit>
void with_folded(const DecodeConfig& c, const DecodeMemory& memory, Visit&& visit) {
  const auto typed = [&]<typename T>() {
    const std::int64_t z_elements = c.batch * c.kv_heads * c.key_dim;
    visit(std::span(static_cast<T*>(memory.folded_S), as_size(z_elements * c.value_dim)));
    if (c.options.normalizer != Normalizer::none)
      visit(std::span(static_cast<T*>(memory.folded_z), as_size(z_elements)));
  };
  accumulation_type(c.dtype) == DType::f64 ? typed.template operator()<double>() : typed.template operator()<float>();
}

std::size_t matrix_bytes(const DecodeConfig& c) {
  return as_size((c.mixing_per_head ? c.heads : 1) * c.mixing_blocks * c.mixing_blocks) *
         element_size(accumulation_type(c.dtype));
}

}  // namespace

std::vector<std::byte> save_decode(const DecodeConfig& config, const void* mixing, const DecodeMemory& memory) {
  const SavedState state{config, OpenBlock::rows, {memory.tokens, memory.tokens + config.batch}};
  ByteWriter out = begin_saved_state(state);
  const auto write = [&](std::span<const std::byte> bytes) { out.array(bytes); };
  write({static_cast<const std::byte*>(mixing), matrix_bytes(config)});
  if (config.folds())
    with_folded(config, memory, [&](auto values) {
      for (const auto value : values) out.value(static_cast<double>(value));
    });
  const Rows rows(state, config, memory);
  for (std::int64_t row = 0; row < config.batch; ++row)
    for (std::int64_t b = state.first(as_size(row)); b < state.block(as_size(row)); ++b) rows.block(row, b, write);
  for (std::int64_t row = 0; row < config.batch; ++row) rows.open(row, state.filled(as_size(row)), write);
  return finish_saved_state(std::move(out));
}

DecodeConfig decode_config_of(const SavedState& state) {
  validate(state.config);
  for (std::size_t row = 0; row < state.tokens.size(); ++row)
    if (state.open == OpenBlock::summary && state.filled(row) > 0)
      throw Error("bytes of a state hold " + std::to_string(state.tokens[row]) +
                  " tokens, saved on the CPU, which keeps the sum of an open block; decoding needs its tokens, so the "
                  "state must be saved at the end of a block of " +
                  std::to_string(state.config.block_size));
  return state.config;
}

void load_decode(const SavedState& state, ByteReader& in, void* mixing, const DecodeMemory& memory) {
  const DecodeConfig config = decode_config_of(state);
  const auto read = [&](std::span<std::byte> bytes) { in.array(bytes); };
  read({static_cast<std::byte*>(mixing), matrix_bytes(config)});
  if (config.folds())
    with_folded(config, memory, [&](auto values) {
      for (auto& value : values) value = static_cast<std::decay_t<decltype(value)>>(in.value<double>());
    });
  const Rows rows(state, config, memory);
  for (std::int64_t row = 0; row < config.batch; ++row) {
    memory.tokens[row] = state.tokens[as_size(row)];
    for (std::int64_t b = state.first(as_size(row)); b < state.block(as_size(row)); ++b) rows.block(row, b, read);
  }
  if (state.open == OpenBlock::rows)
    for (std::int64_t row = 0; row < config.batch; ++row) rows.open(row, state.filled(as_size(row)), read);
}

}  // namespace mhla
