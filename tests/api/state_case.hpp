// A causal call to stream, with random tensors, and comparisons of outputs.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "mhla/state.hpp"

namespace mhla {

inline StateConfig small_config(DType dtype) {
  StateConfig config;
  config.dtype = dtype;
  config.batch = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.key_dim = 5;
  config.value_dim = 19;
  config.block_size = 4;
  config.mixing_blocks = 6;
  config.options.masking = Masking::token_causal;
  config.options.normalizer = Normalizer::paper;
  config.options.scale = 0.7;
  config.options.feature_eps = 1e-3;
  return config;
}

// A causal call over `tokens` tokens of element type E, arithmetic type T, with random q, k, v and mixing.
template <typename E, typename T>
struct Case {
  StateConfig config;
  std::int64_t tokens;
  std::vector<E> q, k, v;
  std::vector<T> mixing;

  Case(const StateConfig& c, std::int64_t n, unsigned seed = 1) : config(c), tokens(n) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform(0.0F, 1.0F);
    const auto fill = [&](std::vector<E>& x, std::int64_t heads, std::int64_t dim) {
      x.resize(static_cast<std::size_t>(c.batch * n * heads * dim));
      for (E& value : x) value = static_cast<E>(normal(random));
    };
    fill(q, c.heads, c.key_dim);
    fill(k, c.kv_heads, c.key_dim);
    fill(v, c.kv_heads, c.value_dim);
    mixing.resize(static_cast<std::size_t>((c.mixing_per_head ? c.heads : 1) * c.mixing_blocks * c.mixing_blocks));
    for (T& value : mixing) value = uniform(random);
  }

  ConstTensor at(const std::vector<E>& x, std::int64_t token, std::int64_t heads, std::int64_t dim) const {
    return contiguous(static_cast<const void*>(x.data() + token * heads * dim), tokens, heads, dim);
  }
  std::vector<E> poisoned_output() const {
    return std::vector<E>(static_cast<std::size_t>(config.batch * tokens * config.heads * config.value_dim),
                          static_cast<E>(std::numeric_limits<float>::quiet_NaN()));
  }
  Tensor out(std::vector<E>& o, std::int64_t token) const {
    return contiguous(static_cast<void*>(o.data() + token * config.heads * config.value_dim), tokens, config.heads,
                      config.value_dim);
  }

  State state() const { return State(config, mixing.data()); }
  void prefill(State& state, std::int64_t begin, std::int64_t end, std::vector<E>& o) const {
    state.prefill(end - begin, at(q, begin, config.heads, config.key_dim),
                  at(k, begin, config.kv_heads, config.key_dim), at(v, begin, config.kv_heads, config.value_dim),
                  out(o, begin));
  }
  void step(State& state, std::int64_t token, std::vector<E>& o) const {
    state.step(at(q, token, config.heads, config.key_dim), at(k, token, config.kv_heads, config.key_dim),
               at(v, token, config.kv_heads, config.value_dim), out(o, token));
  }

  // The whole call at once, with the matrix extended by the policy: by the definition, or by the fast kernels.
  std::vector<E> one_shot(bool fast = false) const {
    const std::int64_t blocks = (tokens + config.block_size - 1) / config.block_size;
    const std::int64_t M = config.mixing_blocks;
    std::vector<T> extended;
    for (std::int64_t h = 0; h < (config.mixing_per_head ? config.heads : 1); ++h) {
      const std::vector<double> matrix(mixing.begin() + h * M * M, mixing.begin() + (h + 1) * M * M);
      const std::vector<double> grown = extend_causal_mixing(matrix, M, blocks, config.beyond);
      extended.insert(extended.end(), grown.begin(), grown.end());
    }
    Problem problem;
    problem.dtype = config.dtype;
    problem.batch = config.batch;
    problem.heads = config.heads;
    problem.kv_heads = config.kv_heads;
    problem.key_dim = config.key_dim;
    problem.value_dim = config.value_dim;
    problem.partition = Partition::line(tokens, config.block_size);
    problem.options = config.options;
    problem.options.algorithm = Algorithm::summary;
    problem.mixing_blocks = blocks;
    problem.mixing_per_head = config.mixing_per_head;
    std::vector<E> o = poisoned_output();
    ForwardArgs args;
    args.in.q = at(q, 0, config.heads, config.key_dim);
    args.in.k = at(k, 0, config.kv_heads, config.key_dim);
    args.in.v = at(v, 0, config.kv_heads, config.value_dim);
    args.in.mixing = extended.data();
    args.o = out(o, 0);
    if (!fast) {
      reference::forward(problem, args);
      return o;
    }
    const Plan plan = mhla::plan(problem);
    struct alignas(64) Line {
      std::byte bytes[64];
    };
    std::vector<Line> workspace(plan.forward_workspace() / 64 + 1);
    args.run = {workspace.data(), workspace.size() * sizeof(Line), nullptr};
    forward(plan, args);
    return o;
  }
};

template <typename E>
double relative_rms(const std::vector<E>& actual, const std::vector<E>& expected) {
  double error = 0, size = 0;
  for (std::size_t n = 0; n < expected.size(); ++n) {
    const double difference = static_cast<double>(actual[n]) - static_cast<double>(expected[n]);
    error += difference * difference;
    size += static_cast<double>(expected[n]) * static_cast<double>(expected[n]);
  }
  return std::sqrt(error / size);
}

template <typename E>
bool same_bits(const std::vector<E>& a, const std::vector<E>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(E)) == 0;
}

}  // namespace mhla
