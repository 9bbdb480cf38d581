// mhla::State: the public face of a stream.
#include "mhla/state.hpp"

#include <atomic>

#include "cpu/stream/stream.hpp"

namespace mhla {
namespace {

const Parallel& or_default(const Parallel* parallel) { return parallel != nullptr ? *parallel : default_parallel(); }

}  // namespace

// The stream and who uses it. The configuration is a copy: a stream that prefills replaces its own.
class State::Memory {
 public:
  explicit Memory(std::unique_ptr<cpu::Stream> stream) : config_(stream->config()), stream_(std::move(stream)) {}

  const StateConfig& config() const { return config_; }

  // Calls `body` with the stream, which no other call may be using.
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

std::vector<std::byte> State::serialize() const {
  return memory().use([](const cpu::Stream& stream) { return stream.serialize(); });
}

State State::restore(std::span<const std::byte> bytes) {
  return State(std::make_unique<Memory>(cpu::restore_stream(bytes)));
}

const StateConfig& State::config() const { return memory().config(); }

std::int64_t State::tokens() const {
  return memory().use([](const cpu::Stream& stream) { return stream.tokens(); });
}

std::size_t State::bytes() const {
  return memory().use([](const cpu::Stream& stream) { return stream.bytes(); });
}

}  // namespace mhla
