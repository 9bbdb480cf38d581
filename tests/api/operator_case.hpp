// One call of the operator with random inputs, run by the fast code or by the reference, for tests to compare.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "api/device.hpp"
#include "cpu/element.hpp"
#include "mhla/attention.hpp"

namespace mhla::test {

// A [batch, tokens, heads, dim] tensor in any element type; with `gap`, rows lie apart as in a slice of a larger
// tensor.
struct TokenTensor {
  DType dtype = DType::f64;
  std::int64_t batch = 0, tokens = 0, heads = 0, dim = 0, gap = 0;
  std::vector<std::byte> bytes;

  TokenTensor() = default;
  TokenTensor(DType type, std::int64_t b, std::int64_t n, std::int64_t h, std::int64_t d, std::int64_t row_gap = 0)
      : dtype(type), batch(b), tokens(n), heads(h), dim(d), gap(row_gap),
        bytes(static_cast<std::size_t>(b * n * h * (d + row_gap)) * element_size(type)) {
    fill([] { return std::numeric_limits<double>::quiet_NaN(); });
  }

  std::int64_t elements() const { return batch * tokens * heads * dim; }
  std::int64_t place(std::int64_t i) const { return i / dim * (dim + gap) + i % dim; }

  double get(std::int64_t i) const {
    return with_element_type(dtype, [&](auto tag) {
      using Element = typename decltype(tag)::type;
      return static_cast<double>(reinterpret_cast<const Element*>(bytes.data())[place(i)]);
    });
  }
  void set(std::int64_t i, double value) {
    with_element_type(dtype, [&](auto tag) {
      using Element = typename decltype(tag)::type;
      reinterpret_cast<Element*>(bytes.data())[place(i)] = static_cast<Element>(value);
    });
  }
  template <typename Next>
  void fill(Next&& next) {
    for (std::int64_t i = 0; i < elements(); ++i) set(i, next());
  }
  std::int64_t row_stride() const { return dim + gap; }
  ConstTensor view() const { return {bytes.data(), tokens * heads * row_stride(), heads * row_stride(), row_stride()}; }
  Tensor view() { return {bytes.data(), tokens * heads * row_stride(), heads * row_stride(), row_stride()}; }
  std::vector<double> values() const {
    std::vector<double> out(static_cast<std::size_t>(elements()));
    for (std::int64_t i = 0; i < elements(); ++i) out[static_cast<std::size_t>(i)] = get(i);
    return out;
  }
};

// Mixing matrices and states: contiguous, accumulation type.
struct StateTensor {
  DType dtype = DType::f64;
  std::vector<double> wide;
  std::vector<float> narrow;

  StateTensor() = default;
  StateTensor(DType token_type, std::int64_t count)
      : dtype(accumulation_type(token_type)),
        wide(dtype == DType::f64 ? static_cast<std::size_t>(count) : 0, std::nan("")),
        narrow(dtype == DType::f32 ? static_cast<std::size_t>(count) : 0, std::nanf("")) {}
  std::int64_t elements() const { return static_cast<std::int64_t>(wide.size() + narrow.size()); }
  void* data() {
    if (elements() == 0) return nullptr;
    return dtype == DType::f64 ? static_cast<void*>(wide.data()) : narrow.data();
  }
  const void* data() const { return const_cast<StateTensor*>(this)->data(); }
  double get(std::int64_t i) const {
    const auto at = static_cast<std::size_t>(i);
    return dtype == DType::f64 ? wide[at] : static_cast<double>(narrow[at]);
  }
  void set(std::int64_t i, double value) {
    const auto at = static_cast<std::size_t>(i);
    if (dtype == DType::f64)
      wide[at] = value;
    else
      narrow[at] = static_cast<float>(value);
  }
  template <typename Next>
  void fill(Next&& next) {
    for (std::int64_t i = 0; i < elements(); ++i) set(i, next());
  }
  std::vector<double> values() const {
    std::vector<double> out(static_cast<std::size_t>(elements()));
    for (std::int64_t i = 0; i < elements(); ++i) out[static_cast<std::size_t>(i)] = get(i);
    return out;
  }
};

// Memory the library gets as workspace, poisoned.
class PoisonedWorkspace {
 public:
  explicit PoisonedWorkspace(std::size_t bytes) : bytes_(bytes) {
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)));
    std::memset(memory_.get(), 0xff, (bytes + 127) / 64 * 64);  // 0xff.. is NaN in float and double
  }
  void* data() const { return memory_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_;
};

inline Buffer buffer(const TokenTensor& x) { return {const_cast<std::byte*>(x.bytes.data()), x.bytes.size()}; }
inline Buffer buffer(const StateTensor& x) {
  return {const_cast<void*>(x.data()), static_cast<std::size_t>(x.elements()) * element_size(x.dtype)};
}

struct Outputs {
  TokenTensor o;
  StateTensor S, z;
};

struct Gradients {
  TokenTensor q, k, v, q_den, k_den;
  StateTensor mixing, S, z;
};

// Inputs for a problem. Numbers are rounded to the problem's dtype; copies in double are exact, so that the reference
// can run on the same numbers in another precision.
struct OperatorCase {
  Problem problem;
  bool with_state = false;  // also makes and differentiates the final state
  TokenTensor q, k, v, q_den, k_den, d_o;
  StateTensor mixing, S0, z0, d_S, d_z;

  OperatorCase() = default;
  OperatorCase(const Problem& p, unsigned seed, std::int64_t gap = 0, bool state = false)
      : problem(p), with_state(state) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> positive(0.05, 1.0);
    const auto draw = [&] { return normal(random); };
    const auto tokens = [&](TokenTensor& t, std::int64_t heads, std::int64_t dim) {
      t = TokenTensor(p.dtype, p.batch, p.partition.tokens(), heads, dim, gap);
      t.fill(draw);
    };
    tokens(q, p.heads, p.key_dim);
    tokens(k, p.kv_heads, p.key_dim);
    tokens(v, p.kv_heads, p.value_dim);
    tokens(d_o, p.heads, p.value_dim);
    if (p.separate_denominator) {
      tokens(q_den, p.heads, p.key_dim);
      tokens(k_den, p.kv_heads, p.key_dim);
    }
    mixing = StateTensor(p.dtype, p.mixing_matrices() * p.mixing_blocks * p.mixing_blocks);
    mixing.fill([&] { return positive(random); });
    const std::int64_t rows = p.sequences() * p.kv_heads;
    if (p.initial_tokens > 0) {
      S0 = StateTensor(p.dtype, rows * p.initial_blocks() * p.key_dim * p.value_dim);
      S0.fill(draw);
      if (normalized()) {
        z0 = StateTensor(p.dtype, rows * p.initial_blocks() * p.key_dim);
        z0.fill([&] { return 3 * positive(random); });
      }
    }
    if (with_state) {
      d_S = StateTensor(p.dtype, rows * p.final_blocks() * p.key_dim * p.value_dim);
      d_S.fill(draw);
      if (normalized()) {
        d_z = StateTensor(p.dtype, rows * p.final_blocks() * p.key_dim);
        d_z.fill(draw);
      }
    }
  }

  bool normalized() const { return problem.options.normalizer != Normalizer::none; }

  // The same numbers in another precision.
  OperatorCase in(DType dtype) const {
    OperatorCase out;
    out.problem = problem;
    out.problem.dtype = dtype;
    out.with_state = with_state;
    const auto tokens = [&](const TokenTensor& from) {
      if (from.bytes.empty()) return TokenTensor();
      TokenTensor to(dtype, from.batch, from.tokens, from.heads, from.dim);
      for (std::int64_t i = 0; i < from.elements(); ++i) to.set(i, from.get(i));
      return to;
    };
    const auto state = [&](const StateTensor& from) {
      StateTensor to(dtype, from.elements());
      for (std::int64_t i = 0; i < from.elements(); ++i) to.set(i, from.get(i));
      return to;
    };
    out.q = tokens(q), out.k = tokens(k), out.v = tokens(v), out.d_o = tokens(d_o);
    out.q_den = tokens(q_den), out.k_den = tokens(k_den);
    out.mixing = state(mixing), out.S0 = state(S0), out.z0 = state(z0), out.d_S = state(d_S), out.d_z = state(d_z);
    return out;
  }

  Inputs inputs() const {
    Inputs in{
        .q = q.view(), .k = k.view(), .v = v.view(), .q_den = {}, .k_den = {}, .mixing = mixing.data(), .initial = {}};
    if (problem.separate_denominator) in.q_den = q_den.view(), in.k_den = k_den.view();
    in.initial = {S0.data(), z0.data()};
    return in;
  }

  Outputs empty_outputs() const {
    const auto& p = problem;
    Outputs out{TokenTensor(p.dtype, p.batch, p.partition.tokens(), p.heads, p.value_dim), {}, {}};
    if (!with_state) return out;
    const std::int64_t rows = p.sequences() * p.kv_heads * p.final_blocks();
    out.S = StateTensor(p.dtype, rows * p.key_dim * p.value_dim);
    if (normalized()) out.z = StateTensor(p.dtype, rows * p.key_dim);
    return out;
  }

  Gradients empty_gradients() const {
    const auto& p = problem;
    const auto tokens = [&](std::int64_t heads, std::int64_t dim) {
      return TokenTensor(p.dtype, p.batch, p.partition.tokens(), heads, dim);
    };
    Gradients g{
        tokens(p.heads, p.key_dim), tokens(p.kv_heads, p.key_dim), tokens(p.kv_heads, p.value_dim), {}, {}, {}, {}, {}};
    if (p.separate_denominator) g.q_den = tokens(p.heads, p.key_dim), g.k_den = tokens(p.kv_heads, p.key_dim);
    g.mixing = StateTensor(p.dtype, mixing.elements());
    g.S = StateTensor(p.dtype, S0.elements());
    g.z = StateTensor(p.dtype, z0.elements());
    return g;
  }

  ForwardArgs forward_args(Outputs& out) const {
    return {.in = inputs(), .o = out.o.view(), .final_state = {out.S.data(), out.z.data()}, .run = {}};
  }
  BackwardArgs backward_args(const TokenTensor& o, Gradients& g) const {
    BackwardArgs args;
    args.in = inputs();
    args.o = o.view();
    args.d_o = d_o.view();
    args.d_final = {d_S.data(), d_z.data()};
    args.d_q = g.q.view(), args.d_k = g.k.view(), args.d_v = g.v.view();
    if (problem.separate_denominator) args.d_q_den = g.q_den.view(), args.d_k_den = g.k_den.view();
    args.d_mixing = g.mixing.data();
    args.d_initial = {g.S.data(), g.z.data()};
    return args;
  }

  // Both run on the problem's device; `kept` is memory of that device.
  Outputs forward(int threads = 2, void* kept = nullptr) const {
    const Plan plan = mhla::plan(problem, threads);
    Outputs out = empty_outputs();
    ForwardArgs args = forward_args(out);
    args.kept = kept;
    execute(plan.forward_workspace(), args, {}, {buffer(out.o), buffer(out.S), buffer(out.z)},
            [&] { mhla::forward(plan, args); });
    return out;
  }
  Gradients backward(const TokenTensor& o, int threads = 2, const void* kept = nullptr) const {
    const Plan plan = mhla::plan(problem, threads);
    Gradients g = empty_gradients();
    BackwardArgs args = backward_args(o, g);
    args.kept = kept;
    execute(plan.backward_workspace(), args, buffer(o),
            {buffer(g.q), buffer(g.k), buffer(g.v), buffer(g.q_den), buffer(g.k_den), buffer(g.mixing), buffer(g.S),
             buffer(g.z)},
            [&] { mhla::backward(plan, args); });
    return g;
  }
  Outputs reference_forward() const {
    Outputs out = empty_outputs();
    reference::forward(problem, forward_args(out));
    return out;
  }
  Gradients reference_backward(const TokenTensor& o) const {
    Gradients g = empty_gradients();
    reference::backward(problem, backward_args(o, g));
    return g;
  }

  // Runs `call` with a poisoned workspace; on CUDA with copies of everything, of which `outputs` come back.
  template <typename Args, typename Call>
  void execute(std::size_t workspace_bytes, Args& args, const Buffer& extra_input, const std::vector<Buffer>& outputs,
               Call&& call) const {
    if (problem.device == Device::cpu) {
      const PoisonedWorkspace workspace(workspace_bytes);
      args.run = {workspace.data(), workspace.bytes(), nullptr, nullptr};
      call();
      return;
    }
    const DeviceMemory workspace(workspace_bytes);
    DeviceCopies copies;
    for (const Buffer& input : inputs_and_gradients()) copies.add(input);
    copies.add(extra_input);
    for (const Buffer& output : outputs) copies.add_output(output);
    copies.redirect(args);
    args.run = {workspace.data(), workspace.bytes(), nullptr, nullptr};
    call();
    copies.download_outputs();
  }

  std::vector<Buffer> inputs_and_gradients() const {
    return {buffer(q),      buffer(k),  buffer(v),  buffer(q_den), buffer(k_den), buffer(d_o),
            buffer(mixing), buffer(S0), buffer(z0), buffer(d_S),   buffer(d_z)};
  }
};

// ||a - b|| / max(||b||, scale); infinite when anything is not finite.
inline double relative_rms(const std::vector<double>& a, const std::vector<double>& b, double scale = 0) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double error = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  if (!std::isfinite(error)) return std::numeric_limits<double>::infinity();
  return error == 0 ? 0 : std::sqrt(error / std::max({size, scale * scale, 1e-300}));
}

// A normalised output does not change when a row of the mixing matrix, a query, or all keys are scaled: their gradients
// are differences of terms of this size and may vanish altogether (M = 1, N = 1), so errors are measured against them.
inline double cancelling_terms(const OperatorCase& c, const TokenTensor& o) {
  if (!c.normalized()) return 0;
  double sum = 0;
  for (std::int64_t row = 0; row < o.elements(); row += o.dim) {
    double dot = 0;
    for (std::int64_t e = row; e < row + o.dim; ++e) dot += o.get(e) * c.d_o.get(e);
    sum += dot * dot;
  }
  return std::sqrt(sum);
}

inline std::string describe(const Problem& p) {
  std::string text = std::string(name(p.device)) + " " + std::string(name(p.dtype)) + " " + p.partition.describe() +
                     " B" + std::to_string(p.batch) + " H" + std::to_string(p.heads) + "/" +
                     std::to_string(p.kv_heads) + " D" + std::to_string(p.key_dim) + "/" + std::to_string(p.value_dim) +
                     " " + std::string(name(p.options.feature_map)) + " " + std::string(name(p.options.normalizer)) +
                     " " + std::string(name(p.options.masking)) + " " + std::string(name(p.options.algorithm));
  if (p.mixing_per_head) text += p.mixing_per_row ? " per-row" : " per-head";
  if (p.separate_denominator) text += " q_den";
  if (p.initial_tokens > 0) text += " initial " + std::to_string(p.initial_tokens);
  if (!p.cu_seqlens.empty()) text += " packed";
  return text;
}

}  // namespace mhla::test
