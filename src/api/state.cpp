// mhla::State: the public face of a stream.
#include "mhla/state.hpp"

#include <string>

#include "cpu/stream/stream.hpp"

namespace mhla {
namespace {

constexpr char kMagic[8] = {'M', 'H', 'L', 'A', 'S', 'T', 'A', 'T'};
constexpr std::uint32_t kFormat = 1;

const Parallel& or_default(const Parallel* parallel) { return parallel != nullptr ? *parallel : default_parallel(); }

}  // namespace

struct State::Memory {
  std::unique_ptr<cpu::Stream> stream;
};

State::State(const StateConfig& config, const void* mixing)
    : memory_(std::make_unique<Memory>(Memory{cpu::make_stream(config, mixing)})) {}

State::State(std::unique_ptr<Memory> memory) : memory_(std::move(memory)) {}
State::~State() = default;
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;

void State::prefill(std::int64_t tokens, ConstTensor q, ConstTensor k, ConstTensor v, Tensor o,
                    const Parallel* parallel) {
  memory_->stream->prefill(tokens, {q, k, v, o}, or_default(parallel));
}

void State::step(ConstTensor q, ConstTensor k, ConstTensor v, Tensor o, const Parallel* parallel) {
  memory_->stream->step({q, k, v, o}, or_default(parallel));
}

State State::fork() const { return State(std::make_unique<Memory>(Memory{memory_->stream->clone()})); }

// Magic, format number, stream, checksum of all before it.
std::vector<std::byte> State::serialize() const {
  ByteWriter out;
  out.array(std::span<const char>(kMagic));
  out.value(kFormat);
  memory_->stream->write(out);
  out.value(checksum(out.bytes()));
  return out.take();
}

State State::restore(std::span<const std::byte> bytes) {
  constexpr std::size_t kFrame = sizeof kMagic + sizeof kFormat + sizeof(std::uint64_t);
  if (bytes.size() < kFrame || std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    throw Error("bytes are not a saved state: they do not begin with " + std::string(kMagic, sizeof kMagic));
  ByteReader in(bytes.first(bytes.size() - sizeof(std::uint64_t)).subspan(sizeof kMagic));
  const auto format = in.value<std::uint32_t>();
  if (format != kFormat)
    throw Error("bytes of a state are in format " + std::to_string(format) + "; this library reads format " +
                std::to_string(kFormat));
  const auto stored = ByteReader(bytes.last(sizeof(std::uint64_t))).value<std::uint64_t>();
  if (stored != checksum(bytes.first(bytes.size() - sizeof stored)))
    throw Error("bytes of a state do not match their checksum; they are damaged or cut short");
  return State(std::make_unique<Memory>(Memory{cpu::read_stream(in)}));
}

const StateConfig& State::config() const { return memory_->stream->config(); }
std::int64_t State::tokens() const { return memory_->stream->tokens(); }
std::size_t State::bytes() const { return memory_->stream->bytes(); }

}  // namespace mhla
