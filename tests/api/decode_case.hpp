// Random tokens of a decoding state and its memory on the device of the tests.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "api/operator_case.hpp"
#include "mhla/decode.hpp"
#include "mhla/mixing.hpp"

namespace mhla::test {

inline DecodeConfig decode_config(DType dtype) {
  DecodeConfig config;
  config.device = test_device();
  config.dtype = dtype;
  config.summary_dtype = accumulation_type(dtype);
  config.batch = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.key_dim = 5;
  config.value_dim = 19;
  config.block_size = 4;
  config.mixing_blocks = 6;
  config.options.masking = Masking::token_causal;
  config.options.scale = 0.7;
  config.options.feature_eps = 1e-3;
  return config;
}

inline std::string describe(const DecodeConfig& c) {
  return std::string(name(c.device)) + " " + std::string(name(c.dtype)) + " state " +
         std::string(name(c.summary_dtype)) + " batch " + std::to_string(c.batch) + " heads " +
         std::to_string(c.heads) + "/" + std::to_string(c.kv_heads) + " Dk " + std::to_string(c.key_dim) + " Dv " +
         std::to_string(c.value_dim) + " blocks of " + std::to_string(c.block_size) + ", trained " +
         std::to_string(c.mixing_blocks) + (c.mixing_per_head ? " per head " : " ") + std::string(name(c.beyond)) +
         " " + std::string(name(c.options.normalizer)) + " " + std::string(name(c.options.feature_map));
}

struct DecodeCase {
  DecodeConfig config;
  std::int64_t tokens;
  TokenTensor q, k, v;
  StateTensor mixing;

  DecodeCase(const DecodeConfig& c, std::int64_t n, unsigned seed = 1) : config(c), tokens(n) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> positive(0.05, 1.0);
    const std::int64_t gap = std::array<std::int64_t, 3>{0, 8, 3}[seed % 3];
    const auto draw = [&](std::int64_t heads, std::int64_t dim) {
      TokenTensor x(c.dtype, c.batch, n, heads, dim, gap);
      x.fill([&] { return normal(random); });
      return x;
    };
    q = draw(c.heads, c.key_dim);
    k = draw(c.kv_heads, c.key_dim);
    v = draw(c.kv_heads, c.value_dim);
    mixing = StateTensor(c.dtype, (c.mixing_per_head ? c.heads : 1) * c.mixing_blocks * c.mixing_blocks);
    mixing.fill([&] { return positive(random); });
  }

  // Tokens [a_begin, a_begin + n) of one row of `a` above as many of `b`.
  DecodeCase(const DecodeCase& a, std::int64_t a_begin, const DecodeCase& b, std::int64_t b_begin, std::int64_t n)
      : config(a.config), tokens(n), mixing(a.mixing) {
    config.batch = 2;
    const auto join = [&](const TokenTensor& x, const TokenTensor& y) {
      TokenTensor joined(config.dtype, 2, n, x.heads, x.dim);
      const std::int64_t size = x.heads * x.dim;
      for (std::int64_t i = 0; i < n * size; ++i) {
        joined.set(i, x.get(a_begin * size + i));
        joined.set(n * size + i, y.get(b_begin * size + i));
      }
      return joined;
    };
    q = join(a.q, b.q);
    k = join(a.k, b.k);
    v = join(a.v, b.v);
  }

  // All tokens by the definition in double, with the matrix extended by the policy.
  std::vector<double> one_call() const {
    const std::int64_t blocks = (tokens + config.block_size - 1) / config.block_size, M = config.mixing_blocks;
    const std::vector<double> trained = mixing.values();
    std::vector<double> extended;
    for (std::int64_t h = 0; h < (config.mixing_per_head ? config.heads : 1); ++h) {
      const std::vector<double> matrix(trained.begin() + h * M * M, trained.begin() + (h + 1) * M * M);
      const std::vector<double> grown = extend_causal_mixing(matrix, M, blocks, config.beyond);
      extended.insert(extended.end(), grown.begin(), grown.end());
    }
    const auto wide = [](const TokenTensor& x) {
      TokenTensor y(DType::f64, x.batch, x.tokens, x.heads, x.dim);
      for (std::int64_t i = 0; i < x.elements(); ++i) y.set(i, x.get(i));
      return y;
    };
    const TokenTensor wide_q = wide(q), wide_k = wide(k), wide_v = wide(v);
    TokenTensor o(DType::f64, config.batch, tokens, config.heads, config.value_dim);
    Problem problem;
    problem.dtype = DType::f64;
    problem.batch = config.batch;
    problem.heads = config.heads;
    problem.kv_heads = config.kv_heads;
    problem.key_dim = config.key_dim;
    problem.value_dim = config.value_dim;
    problem.partition = Partition::line(tokens, config.block_size);
    problem.options = config.options;
    problem.mixing_blocks = blocks;
    problem.mixing_per_head = config.mixing_per_head;
    ForwardArgs args;
    args.in.q = wide_q.view();
    args.in.k = wide_k.view();
    args.in.v = wide_v.view();
    args.in.mixing = extended.data();
    args.o = o.view();
    reference::forward(problem, args);
    return o.values();
  }
};

// Bytes where the config's device reads them.
class PlacedBytes {
 public:
  PlacedBytes(Device device, std::vector<std::byte> bytes) : host_(std::move(bytes)) {
    if (device == Device::cpu || host_.empty()) return;
    device_ = std::make_unique<DeviceMemory>(host_.size());
    device_->upload(host_.data());
  }
  void* data() { return host_.empty() ? nullptr : device_ ? device_->data() : host_.data(); }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> copy = host_;
    if (device_) device_->download(copy.data());
    return copy;
  }

 private:
  std::vector<std::byte> host_;
  std::unique_ptr<DeviceMemory> device_;
};

// A state that walks along the tokens of a case.
class DecodeRun {
 public:
  explicit DecodeRun(const DecodeCase& c) : DecodeRun(c, zeros(c.config)) { open(); }

  // Goes on with the rows of two runs of one row each.
  DecodeRun(const DecodeCase& c, const DecodeRun& a, const DecodeRun& b) : DecodeRun(c, joined(a, b)) {}

  const DecodeConfig& config() const { return config_; }
  std::int64_t consumed() const { return consumed_; }

  void open() { decode_open(config_, args(0)); }
  void step(std::int64_t tokens, void* stream = nullptr) {
    DecodeArgs step_args = args(tokens);
    step_args.run.stream = stream;
    decode_step(config_, tokens, step_args);
    consumed_ += tokens;
  }

  // The call that consumes the next tokens.
  DecodeArgs args(std::int64_t tokens) {
    const auto at = [&](auto view, PlacedBytes& bytes) {
      const std::int64_t offset = tokens > 0 ? consumed_ * view.token_stride : 0;
      view.data =
          static_cast<std::byte*>(bytes.data()) + offset * static_cast<std::int64_t>(element_size(config_.dtype));
      return view;
    };
    DecodeArgs call;
    call.q = at(std::as_const(c_.q).view(), q_);
    call.k = at(std::as_const(c_.k).view(), k_);
    call.v = at(std::as_const(c_.v).view(), v_);
    call.o = at(output_.view(), o_);
    call.mixing = mixing_.data();
    const auto part = [&](std::size_t n) { return memory_[n].data(); };
    call.memory = {.S = part(0),
                   .z = part(1),
                   .P = part(2),
                   .P_z = part(3),
                   .diagonal = part(4),
                   .folded_S = part(5),
                   .folded_z = part(6),
                   .k = part(7),
                   .v = part(8),
                   .tokens = static_cast<std::int64_t*>(part(9)),
                   .arrivals = static_cast<std::int32_t*>(part(10))};
    return call;
  }

  std::vector<double> outputs() {
    output_.bytes = o_.bytes();
    return output_.values();
  }
  std::vector<std::int64_t> positions() const {
    const std::vector<std::byte> bytes = memory_[9].bytes();
    std::vector<std::int64_t> positions(bytes.size() / sizeof(std::int64_t));
    std::memcpy(positions.data(), bytes.data(), bytes.size());
    return positions;
  }

 private:
  using Bytes = std::vector<std::byte>;

  DecodeRun(const DecodeCase& c, std::vector<Bytes> memory)
      : c_(c), config_(c.config), output_(c.config.dtype, c.config.batch, c.tokens, c.config.heads, c.config.value_dim),
        q_(config_.device, c.q.bytes), k_(config_.device, c.k.bytes), v_(config_.device, c.v.bytes),
        o_(config_.device, output_.bytes), mixing_(config_.device, bytes_of(c.mixing)) {
    for (Bytes& bytes : memory) memory_.emplace_back(config_.device, std::move(bytes));
  }

  static Bytes bytes_of(const StateTensor& x) {
    const Buffer from = buffer(x);
    Bytes bytes(from.bytes);
    if (from.bytes > 0) std::memcpy(bytes.data(), from.data, from.bytes);
    return bytes;
  }

  static std::vector<Bytes> zeros(const DecodeConfig& c) {
    const std::size_t T = element_size(accumulation_type(c.dtype)), A = element_size(c.summary_dtype),
                      E = element_size(c.dtype);
    const std::int64_t groups = c.batch * c.kv_heads, mixed = c.batch * c.mixed_heads();
    const std::int64_t z = c.options.normalizer == Normalizer::none ? 0 : 1, folds = c.folds() ? 1 : 0;
    const auto bytes = [](std::int64_t count, std::size_t size) {
      return Bytes(static_cast<std::size_t>(count) * size);
    };
    return {bytes(groups * c.slots() * c.key_dim * c.value_dim, A),
            bytes(z * groups * c.slots() * c.key_dim, T),
            bytes(mixed * c.key_dim * c.value_dim, A),
            bytes(z * mixed * c.key_dim, T),
            bytes(mixed, T),
            bytes(folds * groups * c.key_dim * c.value_dim, T),
            bytes(z * folds * groups * c.key_dim, T),
            bytes(groups * c.block_size * c.key_dim, E),
            bytes(groups * c.block_size * c.value_dim, E),
            bytes(c.batch, sizeof(std::int64_t)),
            bytes(c.batch * (c.kv_heads + 1), sizeof(std::int32_t))};
  }

  static std::vector<Bytes> joined(const DecodeRun& a, const DecodeRun& b) {
    std::vector<Bytes> memory;
    for (std::size_t n = 0; n < a.memory_.size(); ++n) {
      memory.push_back(a.memory_[n].bytes());
      const Bytes more = b.memory_[n].bytes();
      memory.back().insert(memory.back().end(), more.begin(), more.end());
    }
    return memory;
  }

  const DecodeCase& c_;
  DecodeConfig config_;
  TokenTensor output_;
  PlacedBytes q_, k_, v_, o_, mixing_;
  std::vector<PlacedBytes> memory_;
  std::int64_t consumed_ = 0;
};

}  // namespace mhla::test
