// The operator's arguments: any Problem is refused by name, or planned; small ones are run, forward against the formula
// in double and backward to its end.
#include <algorithm>
#include <limits>

#include "support/choices.hpp"
#include "support/numbers.hpp"

using namespace mhla;
using fuzz::Choices;
using fuzz::Numbers;

namespace {

constexpr std::int64_t kFew = 64;  // tokens and widths that are run

Partition partition_of(Choices& choices) {
  if (!choices.rarely() && choices.flag()) return Partition::line(choices.size(0, 24), choices.size(1, 9));
  const auto axes = static_cast<std::size_t>(choices.number(1, 3));
  std::array<std::int64_t, 3> sizes{}, extents{};
  for (std::size_t axis = 0; axis < axes; ++axis) sizes[axis] = choices.size(1, 4), extents[axis] = choices.size(1, 4);
  return Partition::by_extent(std::span(sizes).first(axes), std::span(extents).first(axes));
}

Problem problem_of(Choices& choices) {
  Problem p;
  p.dtype = choices.choice<DType>(4);
  p.partition = partition_of(choices);
  p.batch = choices.size(0, 2);
  p.heads = choices.size(1, 3);
  p.kv_heads = choices.flag() ? p.heads : choices.size(1, 2);
  p.key_dim = choices.size(1, 9);
  p.value_dim = choices.size(1, 9);
  p.options.feature_map = choices.choice<FeatureMap>(5);
  p.options.normalizer = choices.choice<Normalizer>(3);
  p.options.masking = p.partition.is_line() ? choices.choice<Masking>(3) : Masking::none;
  p.options.algorithm = choices.choice<Algorithm>(3);
  p.options.scale = choices.factor();
  p.options.eps = choices.factor();
  p.options.feature_eps = choices.flag() ? 0 : choices.factor();
  if (p.partition.is_line() && choices.byte() < 50) {
    p.batch = 1;
    p.cu_seqlens = {0};
    constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t cuts = choices.number(0, 2); cuts > 0; --cuts) {
      const std::int64_t last = p.cu_seqlens.back();
      p.cu_seqlens.push_back(choices.size(last, std::max(last, std::min(last, kLargest - 9) + 9)));
    }
    p.cu_seqlens.push_back(p.partition.tokens());
  }
  if (p.options.masking != Masking::none && choices.flag()) {
    p.initial_tokens = choices.size(0, 12);
    if (p.options.masking == Masking::block_causal && p.initial_tokens < kFew)
      p.initial_tokens -= p.initial_tokens % p.partition.block_capacity();
  }
  p.mixing_blocks = choices.rarely() ? choices.size(0, 9) : std::clamp<std::int64_t>(p.final_blocks(), 0, 1 << 20);
  p.mixing_per_head = choices.flag();
  p.separate_denominator = p.options.normalizer != Normalizer::none && choices.byte() < 60;
  p.mixing_per_row = p.mixing_per_head && choices.rarely();
  return p;
}

bool is_small(const Problem& p) {
  return p.partition.tokens() <= kFew && p.batch <= kFew && p.heads <= kFew && p.key_dim <= kFew &&
         p.value_dim <= kFew && p.mixing_blocks <= kFew && p.initial_tokens <= kFew;
}

struct Call {
  Problem p;
  Numbers q, k, v, q_den, k_den, mixing, S, z, o;

  explicit Call(const Problem& problem) : p(problem) {
    const std::int64_t tokens = p.batch * p.partition.tokens();
    const DType wide = accumulation_type(p.dtype);
    q = fuzz::filled(p.dtype, tokens * p.heads * p.key_dim, 1);
    k = fuzz::filled(p.dtype, tokens * p.kv_heads * p.key_dim, 2);
    v = fuzz::filled(p.dtype, tokens * p.kv_heads * p.value_dim, 3);
    o = Numbers(p.dtype, tokens * p.heads * p.value_dim);
    if (p.separate_denominator) {
      q_den = fuzz::filled(p.dtype, q.size(), 4);
      k_den = fuzz::filled(p.dtype, k.size(), 5);
    }
    mixing = fuzz::filled(wide, p.mixing_matrices() * p.mixing_blocks * p.mixing_blocks, 6, true);
    if (p.initial_tokens > 0) {
      const std::int64_t rows = p.sequences() * p.kv_heads * p.initial_blocks() * p.key_dim;
      S = fuzz::filled(wide, rows * p.value_dim, 7);
      if (p.options.normalizer != Normalizer::none) z = fuzz::filled(wide, rows, 8, true);
    }
  }

  Inputs inputs() const {
    const std::int64_t tokens = p.partition.tokens();
    Inputs in{.q = contiguous(q.data(), tokens, p.heads, p.key_dim),
              .k = contiguous(k.data(), tokens, p.kv_heads, p.key_dim),
              .v = contiguous(v.data(), tokens, p.kv_heads, p.value_dim),
              .q_den = {},
              .k_den = {},
              .mixing = mixing.data(),
              .initial = {S.data(), z.data()}};
    if (p.separate_denominator) {
      in.q_den = contiguous(q_den.data(), tokens, p.heads, p.key_dim);
      in.k_den = contiguous(k_den.data(), tokens, p.kv_heads, p.key_dim);
    }
    return in;
  }
  Tensor output() { return contiguous(o.data(), p.partition.tokens(), p.heads, p.value_dim); }
};

// Where a token is: its sequence, its block there, and its place in the block.
struct Place {
  std::int64_t sequence = 0, block = 0, slot = 0;
};

Place place_of(const Problem& p, std::int64_t token) {
  if (!p.partition.is_line()) return {0, p.partition.block_of(token), p.partition.slot_of(token)};
  std::int64_t position = token, sequence = 0;
  if (!p.cu_seqlens.empty()) {
    while (token >= p.cu_seqlens[static_cast<std::size_t>(sequence) + 1]) ++sequence;
    position -= p.cu_seqlens[static_cast<std::size_t>(sequence)];
  }
  position += p.initial_tokens;
  return {sequence, position / p.partition.block_capacity(), position % p.partition.block_capacity()};
}

class Formula {
 public:
  explicit Formula(const Call& call) : c_(call), p_(call.p) {
    for (std::int64_t t = 0; t < p_.partition.tokens(); ++t) places_.push_back(place_of(p_, t));
  }

  void check_output() const {
    const bool any =
        p_.options.eps < 1e37 && std::abs(p_.options.scale) < 1e37 && std::abs(p_.options.feature_eps) < 1e37;
    if (!any) return;  // not numbers of the type the sums are in
    for (std::int64_t b = 0; b < p_.batch; ++b)
      for (std::int64_t t = 0; t < p_.partition.tokens(); ++t)
        for (std::int64_t h = 0; h < p_.heads; ++h) check_row(b, t, h);
  }

 private:
  std::int64_t at(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t heads, std::int64_t dim) const {
    return ((b * p_.partition.tokens() + t) * heads + h) * dim;
  }
  double phi(const Numbers& x, std::int64_t i) const {
    return fuzz::feature(p_.options.feature_map, x[i]) + p_.options.feature_eps;
  }
  double weight(std::int64_t row, std::int64_t h, std::int64_t i, std::int64_t b) const {
    return c_.mixing[(p_.matrix_of(row, h) * p_.mixing_blocks + i) * p_.mixing_blocks + b];
  }
  bool sees(std::int64_t t, std::int64_t s) const {
    if (place(t).sequence != place(s).sequence) return false;
    if (p_.options.masking == Masking::token_causal) return s <= t;
    return p_.options.masking == Masking::none || place(s).block <= place(t).block;
  }
  const Place& place(std::int64_t t) const { return places_[static_cast<std::size_t>(t)]; }

  double dot(const Numbers& q, const Numbers& k, std::int64_t b, std::int64_t t, std::int64_t s, std::int64_t h) const {
    const std::int64_t g = h / (p_.heads / p_.kv_heads);
    double sum = 0;
    for (std::int64_t d = 0; d < p_.key_dim; ++d)
      sum += phi(q, at(b, t, h, p_.heads, p_.key_dim) + d) * phi(k, at(b, s, g, p_.kv_heads, p_.key_dim) + d);
    return p_.options.scale * sum;
  }

  // phi(q_t) . row d of the initial state's block, summed over d: for one column of S, or for z.
  template <typename Add>
  void for_each_initial(std::int64_t b, std::int64_t t, std::int64_t h, const Add& add) const {
    const std::int64_t g = h / (p_.heads / p_.kv_heads), row = p_.cu_seqlens.empty() ? b : place(t).sequence;
    for (std::int64_t block = 0; block < p_.initial_blocks() && block <= place(t).block; ++block)
      for (std::int64_t d = 0; d < p_.key_dim; ++d)
        add(((row * p_.kv_heads + g) * p_.initial_blocks() + block) * p_.key_dim + d,
            weight(b, h, place(t).block, block) * p_.options.scale, d);
  }

  fuzz::Sum denominator(std::int64_t b, std::int64_t t, std::int64_t h) const {
    fuzz::Sum sum;
    if (p_.options.normalizer == Normalizer::none) {
      sum.value = 1 - p_.options.eps;
      return sum;
    }
    const Numbers& q = p_.separate_denominator ? c_.q_den : c_.q;
    const Numbers& k = p_.separate_denominator ? c_.k_den : c_.k;
    const std::int64_t N = p_.partition.tokens();
    for (std::int64_t s = 0; s < N; ++s) {
      if (!sees(t, s)) continue;
      const double m = weight(b, h, place(t).block, place(s).block);
      if (p_.options.normalizer == Normalizer::paper) {
        sum.add(m * dot(q, k, b, t, s, h));
      } else if (place(s).slot == place(t).slot) {  // the authors': that token's own block
        for (std::int64_t u = 0; u < N; ++u)
          if (place(u).sequence == place(s).sequence && place(u).block == place(s).block)
            sum.add(m * dot(q, k, b, s, u, h));
      }
    }
    for_each_initial(b, t, h, [&](std::int64_t i, double m, std::int64_t d) {
      sum.add(m * phi(q, at(b, t, h, p_.heads, p_.key_dim) + d) * c_.z[i]);
    });
    // The sizes above are of sums over the width; each of their terms is at most that large times a few.
    sum.size *= 4;
    sum.size += 4 * std::abs(p_.options.scale);
    return sum;
  }

  void check_row(std::int64_t b, std::int64_t t, std::int64_t h) const {
    const fuzz::Sum below = denominator(b, t, h);
    const std::int64_t g = h / (p_.heads / p_.kv_heads);
    for (std::int64_t e = 0; e < p_.value_dim; ++e) {
      fuzz::Sum above;
      for (std::int64_t s = 0; s < p_.partition.tokens(); ++s)
        if (sees(t, s))
          above.add(weight(b, h, place(t).block, place(s).block) * dot(c_.q, c_.k, b, t, s, h) *
                    c_.v[at(b, s, g, p_.kv_heads, p_.value_dim) + e]);
      for_each_initial(b, t, h, [&](std::int64_t i, double m, std::int64_t d) {
        above.add(m * phi(c_.q, at(b, t, h, p_.heads, p_.key_dim) + d) * c_.S[i * p_.value_dim + e]);
      });
      above.size = 4 * above.size + 4 * std::abs(p_.options.scale);
      const double actual = c_.o[at(b, t, h, p_.heads, p_.value_dim) + e];
      const double eps = p_.options.eps;
      if (!fuzz::agrees(actual, above, below, eps, p_.dtype))
        fuzz::fail("o[" + std::to_string(b) + "][" + std::to_string(t) + "][" + std::to_string(h) + "][" +
                   std::to_string(e) + "] is " + std::to_string(actual) + ", not " +
                   std::to_string(above.value / (below.value + eps)) + ", of " + p_.partition.describe());
    }
  }

  const Call& c_;
  const Problem& p_;
  std::vector<Place> places_;
};

struct Workspace {
  explicit Workspace(std::size_t bytes) : size(bytes), memory(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64)) {
    fuzz::expect(memory != nullptr, "a workspace of " + std::to_string(bytes) + " bytes for a small call");
    std::memset(memory, 0xff, bytes);
  }
  ~Workspace() { std::free(memory); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  Execution run() const { return {memory, size, &serial(), nullptr}; }
  std::size_t size;
  void* memory;
};

void run(const Plan& plan) {
  const Problem& p = plan.problem();
  Call call(p);
  const Workspace forward_memory(plan.forward_workspace());
  ForwardArgs args{.in = call.inputs(), .o = call.output(), .final_state = {}, .run = forward_memory.run()};
  Numbers S, z;
  if (p.options.masking != Masking::none) {
    const std::int64_t rows = p.sequences() * p.kv_heads * p.final_blocks() * p.key_dim;
    S = Numbers(accumulation_type(p.dtype), rows * p.value_dim);
    if (p.options.normalizer != Normalizer::none) z = Numbers(accumulation_type(p.dtype), rows);
    args.final_state = {S.data(), z.data()};
  }
  forward(plan, args);
  Formula(call).check_output();

  const Workspace backward_memory(plan.backward_workspace());
  const std::int64_t tokens = p.partition.tokens();
  const Numbers d_o = fuzz::filled(p.dtype, call.o.size(), 9);
  Numbers d_q(p.dtype, call.q.size()), d_k(p.dtype, call.k.size()), d_v(p.dtype, call.v.size());
  Numbers d_q_den(p.dtype, call.q_den.size()), d_k_den(p.dtype, call.k_den.size());
  const DType wide = accumulation_type(p.dtype);
  Numbers d_mixing(wide, call.mixing.size()), d_S(wide, call.S.size()), d_z(wide, call.z.size());
  BackwardArgs back;
  back.in = call.inputs();
  back.o = contiguous(static_cast<const void*>(call.o.data()), tokens, p.heads, p.value_dim);
  back.d_o = contiguous(d_o.data(), tokens, p.heads, p.value_dim);
  back.d_q = contiguous(d_q.data(), tokens, p.heads, p.key_dim);
  back.d_k = contiguous(d_k.data(), tokens, p.kv_heads, p.key_dim);
  back.d_v = contiguous(d_v.data(), tokens, p.kv_heads, p.value_dim);
  if (p.separate_denominator) {
    back.d_q_den = contiguous(d_q_den.data(), tokens, p.heads, p.key_dim);
    back.d_k_den = contiguous(d_k_den.data(), tokens, p.kv_heads, p.key_dim);
  }
  back.d_mixing = d_mixing.data();
  back.d_initial = {d_S.data(), d_z.data()};
  back.run = backward_memory.run();
  backward(plan, back);
}

}  // namespace

fuzz::Inputs fuzz::seeds() { return {}; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices choices(fuzz::bytes_of(data, size));
  fuzz::runs_or_names(
      {"partition", "sizes", "extents", "tokens", "block", "batch", "heads", "kv_heads", "key_dim", "value_dim",
       "scale", "eps", "mixing", "q_den", "cu_seqlens", "initial_tokens", "normalizer", "algorithm", "masking"},
      [&] {
        const Plan plan = mhla::plan(problem_of(choices), 1);
        if (is_small(plan.problem())) run(plan);
      });
  return 0;
}
