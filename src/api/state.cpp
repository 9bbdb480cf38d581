// mhla::State: the public face of a stream.
#include "mhla/state.hpp"

#include <atomic>
#include <string>

#include "cpu/stream/stream.hpp"

namespace mhla {
namespace {

constexpr char kMagic[8] = {'M', 'H', 'L', 'A', 'S', 'T', 'A', 'T'};
constexpr std::uint32_t kFormat = 1;

const Parallel& or_default(const Parallel* parallel) { return parallel != nullptr ? *parallel : default_parallel(); }

}  // namespace

// The stream and who uses it. The configuration is a copy: a stream that prefills replaces its own.
class State::Memory {
 public:
  explicit Memory(std::unique_ptr<cpu::Stream> stream) : config_(stream->config()), stream_(std::move(stream)) {}

  const StateConfig& config() const { return config_; }

  // Calls `body` with the stream, of which no other call may hold it.
  template <typename Body>
  auto use(Body&& body) {
    if (in_use_.exchange(true, std::memory_order_acquire))
      throw Error("state is in use by another call; one thread at a time uses a state (a fork is a state of its own)");
    struct Release {
      std::atomic<bool>& in_use;
      ~Release() { in_use.store(false, std::memory_order_release); }
    } release{in_use_};
    return body(*stream_);
  }

 private:
  const StateConfig config_;
  std::unique_ptr<cpu::Stream> stream_;
  std::atomic<bool> in_use_ = false;
};

State::State(const StateConfig& config, const void* mixing)
    : memory_(std::make_unique<Memory>(cpu::make_stream(config, mixing))) {}

State::State(std::unique_ptr<Memory> memory) : memory_(std::move(memory)) {}
State::~State() = default;
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;

State::Memory& State::memory() const {
  if (memory_ == nullptr) throw Error("state is empty; it was moved into another");
  return *memory_;
}

void State::prefill(std::int64_t tokens, ConstTensor q, ConstTensor k, ConstTensor v, Tensor o,
                    const Parallel* parallel) {
  memory().use([&](cpu::Stream& stream) { stream.prefill(tokens, {q, k, v, o}, or_default(parallel)); });
}

void State::step(ConstTensor q, ConstTensor k, ConstTensor v, Tensor o, const Parallel* parallel) {
  memory().use([&](cpu::Stream& stream) { stream.step({q, k, v, o}, or_default(parallel)); });
}

State State::fork() const {
  return State(memory().use([](const cpu::Stream& stream) { return std::make_unique<Memory>(stream.clone()); }));
}

// Magic, format number, stream, checksum of all before it.
std::vector<std::byte> State::serialize() const {
  ByteWriter out;
  out.array(std::span<const char>(kMagic));
  out.value(kFormat);
  memory().use([&](const cpu::Stream& stream) { stream.write(out); });
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
  return State(std::make_unique<Memory>(cpu::read_stream(in)));
}

const StateConfig& State::config() const { return memory().config(); }

std::int64_t State::tokens() const {
  return memory().use([](const cpu::Stream& stream) { return stream.tokens(); });
}

std::size_t State::bytes() const {
  return memory().use([](const cpu::Stream& stream) { return stream.bytes(); });
}

}  // namespace mhla
