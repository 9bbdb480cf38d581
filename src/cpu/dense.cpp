// The dense form, forward and backward: O = (A * w) V with A = phi(Q) phi(K)^T and w[t, s] = m[block(t), block(s)]
// where t may see s. The paper's denominator is the row sum of A * w, as if V had one more column of ones. Tokens are
// kept in block order, so that the weights of a query block's rows are one vector.
#include <algorithm>
#include <deque>
#include <vector>

#include "cpu/algorithms.hpp"
#include "cpu/cpu_call.hpp"
#include "cpu/mixing_gradient.hpp"
#include "cpu/stages.hpp"

namespace mhla::cpu::dense {
namespace {

// The keys and values of one unit (sequence, kv head), and the weighted products of one chunk of queries with them.
template <typename T>
class Unit {
 public:
  Unit(const CpuCall<T>& call, const Inputs* in, Workspace& w)
      : call_(call), in_(in), kernel_(call.kernel), N_(call.p.partition.tokens()), ld_(padded<T>(N_)),
        keys_(w.take<T>(call.p.key_dim * ld_)), values_(w.take<T>(N_ * padded<T>(call.p.value_dim))),
        weights_(w.take<T>(ld_)), tile_k_(w, call.p.key_dim), tile_v_(w, call.p.value_dim), q(w, call.p.key_dim),
        A(w, N_) {}

  void open(std::int64_t unit) {
    s = call_.sequence(unit);
    kv = call_.kv_head(unit);
    offsets.assign(1, 0);
    for (std::int64_t b = 0; b < s.blocks; ++b) {
      std::int64_t at = offsets.back();
      call_.for_each_chunk(s, b, [&](const Chunk& chunk, const Chunk&) {
        load_keys(chunk, at);
        at += chunk.tokens;
      });
      offsets.push_back(at);
    }
  }

  // Loads the chunk's queries, of which `first` is the place of the first, and computes their raw scores against every
  // key that one of them sees.
  void score(const Chunk& chunk, std::int64_t block, std::int64_t head, std::int64_t first) {
    call_.load(in_->q, call_.query_features, s, head, chunk, q);
    visible_ = offsets.back();
    if (call_.p.options.masking == Masking::block_causal) visible_ = offsets[static_cast<std::size_t>(block + 1)];
    if (call_.token_causal) visible_ = first + chunk.tokens;
    A.dim = visible_;
    raw_scores(chunk.tokens);
    const T* row = call_.mixing(*in_, s, head) + block * call_.p.mixing_blocks;
    for (std::size_t b = 0; b + 1 < offsets.size() && offsets[b] < visible_; ++b)
      std::fill(weights_ + offsets[b], weights_ + offsets[b + 1], row[b]);
  }

  void raw_scores(std::int64_t tokens) const { apply(kernel_, tokens, q, keys_, ld_, A, false); }

  // X *= w; `first` is the place of the chunk's first token.
  void weigh(const Tile<T>& X, std::int64_t tokens, std::int64_t first) const {
    for (std::int64_t panel = 0; panel < X.panels(); ++panel)
      for (std::int64_t t = 0; t < tokens; ++t) {
        T* row = X.panel(panel) + t * kTileStride<T>;
        const std::int64_t at = panel * kPanel<T>;
        const std::int64_t seen =
            call_.token_causal ? std::clamp<std::int64_t>(first + t + 1 - at, 0, X.width(panel)) : X.width(panel);
        for (std::int64_t c = 0; c < seen; ++c) row[c] *= weights_[at + c];
        std::fill(row + seen, row + X.width(panel), T(0));
      }
  }

  // out_t = sum of X[t, s] rows[s] over the tokens s that token t of the chunk sees: what it does not see may be NaN,
  // which a weight of zero would not hide.
  void apply_seen(const Tile<T>& X, std::int64_t tokens, std::int64_t first, const T* rows, const Tile<T>& out) const {
    if (!call_.token_causal) return apply(kernel_, tokens, X, rows, out, false);
    const std::int64_t ld = padded<T>(out.dim);
    for (std::int64_t po = 0; po < out.panels(); ++po)
      for (std::int64_t pi = 0; pi < X.panels(); ++pi) {
        const std::int64_t at = pi * kPanel<T>, width = X.width(pi);
        const auto product = [&](std::int64_t begin, std::int64_t end, std::int64_t seen, Steps steps) {
          if (begin >= end) return;
          kernel_.product_rows({.m = end - begin,
                                .n = out.padded_width(po),
                                .k = seen,
                                .a = X.panel(pi) + begin * kTileStride<T>,
                                .lda = 0,
                                .b = rows + at * ld + po * kPanel<T>,
                                .ldb = ld,
                                .c = out.panel(po) + begin * kTileStride<T>,
                                .ldc = kTileStride<T>,
                                .accumulate = pi > 0,
                                .steps = steps});
        };
        const std::int64_t some = std::max<std::int64_t>(at - first, 0);  // the first row that sees any of the panel
        const std::int64_t all = std::clamp(at + width - 1 - first, some, tokens);  // the first that sees all of it
        product(some, all, first + some + 1 - at, Steps::growing);
        product(all, tokens, width, Steps::all);
      }
  }

  // sums[s] += sum of X[t, s] y_t over the tokens t of the chunk that see token s.
  void add_seen(const Tile<T>& X, std::int64_t tokens, std::int64_t first, const Tile<T>& y, T* sums) const {
    if (!call_.token_causal) return outer_product(kernel_, tokens, X, y, sums, true);
    const std::int64_t ld = padded<T>(y.dim);
    for (std::int64_t px = 0; px < X.panels(); ++px)
      for (std::int64_t py = 0; py < y.panels(); ++py) {
        const std::int64_t at = px * kPanel<T>, width = X.width(px);
        const auto product = [&](std::int64_t begin, std::int64_t end, std::int64_t token, Steps steps) {
          if (begin >= end) return;
          kernel_.product_k_major({.m = end - begin,
                                   .n = y.padded_width(py),
                                   .k = tokens - token,
                                   .a = X.panel(px) + token * kTileStride<T> + begin,
                                   .lda = kTileStride<T>,
                                   .b = y.panel(py) + token * kTileStride<T>,
                                   .ldb = kTileStride<T>,
                                   .c = sums + (at + begin) * ld + py * kPanel<T>,
                                   .ldc = ld,
                                   .accumulate = true,
                                   .steps = steps});
        };
        const std::int64_t by_all = std::clamp<std::int64_t>(first + 1 - at, 0, width);  // columns that all tokens see
        product(0, by_all, 0, Steps::all);
        product(by_all, width, at + by_all - first, Steps::shrinking);
      }
  }

  // Denominators from the weighted scores.
  void row_sums(std::int64_t tokens, T* out) const {
    std::fill_n(out, tokens, static_cast<T>(call_.p.options.eps));
    for (std::int64_t panel = 0; panel < A.panels(); ++panel)
      for (std::int64_t t = 0; t < tokens; ++t) {
        const T* row = A.panel(panel) + t * kTileStride<T>;
        T sum = T(0);
        for (std::int64_t c = 0; c < A.width(panel); ++c) sum += row[c];
        out[t] += sum;
      }
  }

  std::int64_t visible() const { return visible_; }
  std::int64_t ld() const { return ld_; }
  const T* values() const { return values_; }

 private:
  void load_keys(const Chunk& chunk, std::int64_t at) {
    call_.load(in_->k, call_.key_features, s, kv, chunk, tile_k_);
    call_.load(in_->v, call_.no_features, s, kv, chunk, tile_v_);
    for (std::int64_t panel = 0; panel < tile_k_.panels(); ++panel)
      kernel_.transpose(chunk.tokens, tile_k_.width(panel), tile_k_.panel(panel), kTileStride<T>,
                        keys_ + panel * kPanel<T> * ld_ + at, ld_);
    for (std::int64_t panel = 0; panel < tile_v_.panels(); ++panel)
      for (std::int64_t t = 0; t < chunk.tokens; ++t)
        std::copy_n(tile_v_.panel(panel) + t * kTileStride<T>, tile_v_.padded_width(panel),
                    values_ + (at + t) * padded<T>(tile_v_.dim) + panel * kPanel<T>);
  }

  const CpuCall<T>& call_;
  const Inputs* in_;
  const Kernels<T>& kernel_;
  std::int64_t N_, ld_;
  T* keys_;     // phi(K)^T [Dk, N]
  T* values_;   // V [N, Dv]
  T* weights_;  // w of the current query block
  Tile<T> tile_k_, tile_v_;
  std::int64_t visible_ = 0;

 public:
  Tile<T> q, A;
  Sequence s;
  std::int64_t kv = 0;
  std::vector<std::int64_t> offsets;  // of the blocks' first tokens
};

template <typename T>
struct Forward {
  Unit<T> unit;
  Tile<T> o;
  T* factor;

  Forward(const CpuCall<T>& call, const ForwardArgs* args, Workspace& w)
      : unit(call, args == nullptr ? nullptr : &args->in, w), o(w, call.p.value_dim), factor(w.take<T>(kTileTokens)) {}

  void run(const CpuCall<T>& call, const ForwardArgs& args, std::int64_t index) {
    unit.open(index);
    for (std::int64_t h = unit.kv * call.group; h < (unit.kv + 1) * call.group; ++h)
      for (std::int64_t i = 0; i < unit.s.blocks; ++i) {
        std::int64_t first = unit.offsets[static_cast<std::size_t>(i)];
        call.for_each_chunk(unit.s, i, [&](const Chunk& chunk, const Chunk&) {
          unit.score(chunk, i, h, first);
          unit.weigh(unit.A, chunk.tokens, first);
          unit.apply_seen(unit.A, chunk.tokens, first, unit.values(), o);
          if (call.has_denominator()) {
            unit.row_sums(chunk.tokens, factor);
            for (std::int64_t t = 0; t < chunk.tokens; ++t) factor[t] = T(1) / factor[t];
          }
          call.store(args.o, unit.s, h, chunk, o, call.has_denominator() ? factor : nullptr);
          first += chunk.tokens;
        });
      }
  }
};

template <typename T>
class Backward {
 public:
  Backward(const CpuCall<T>& call, const BackwardArgs* args, MixingGradient<T>* d_mixing, Workspace& w)
      : call_(call), args_(args), d_mixing_(d_mixing), kernel_(call.kernel),
        unit_(call, args == nullptr ? nullptr : &args->in, w), N_(call.p.partition.tokens()),
        key_width_(padded<T>(call.p.key_dim)), value_width_(padded<T>(call.p.value_dim)),
        key_rows_(w.take<T>(N_ * key_width_)), values_transposed_(w.take<T>(call.p.value_dim * padded<T>(N_))),
        d_keys_(w.take<T>(N_ * key_width_)), d_values_(w.take<T>(N_ * value_width_)), o_(w, call.p.value_dim),
        d_o_(w, call.p.value_dim), d_q_(w, call.p.key_dim), d_v_(w, call.p.value_dim), B_(w, N_),
        inverse_(w.take<T>(kTileTokens)), d_den_(w.take<T>(kTileTokens)) {}

  void run(std::int64_t index, std::int64_t part) {
    unit_.open(index);
    open_gradients();
    for (std::int64_t h = unit_.kv * call_.group; h < (unit_.kv + 1) * call_.group; ++h)
      for (std::int64_t i = 0; i < unit_.s.blocks; ++i) {
        std::int64_t first = unit_.offsets[static_cast<std::size_t>(i)];
        call_.for_each_chunk(unit_.s, i, [&](const Chunk& chunk, const Chunk&) {
          chunk_gradient(chunk, i, h, first, part);
          first += chunk.tokens;
        });
      }
    store_key_gradients();
  }

 private:
  // K by rows and V transposed from what the unit holds, and zeroed gradients.
  void open_gradients() {
    const std::int64_t n = unit_.offsets.back();
    kernel_.transpose(n, call_.p.value_dim, unit_.values(), value_width_, values_transposed_, unit_.ld());
    for (std::int64_t b = 0; b < unit_.s.blocks; ++b) {
      std::int64_t at = unit_.offsets[static_cast<std::size_t>(b)];
      call_.for_each_chunk(unit_.s, b, [&](const Chunk& chunk, const Chunk&) {
        call_.load(args_->in.k, call_.key_features, unit_.s, unit_.kv, chunk, d_q_);
        copy_rows(d_q_, chunk.tokens, key_rows_ + at * key_width_, key_width_);
        at += chunk.tokens;
      });
    }
    std::fill_n(d_keys_, n * key_width_, T(0));
    std::fill_n(d_values_, n * value_width_, T(0));
  }

  void chunk_gradient(const Chunk& chunk, std::int64_t i, std::int64_t head, std::int64_t first, std::int64_t part) {
    const std::int64_t tokens = chunk.tokens;
    unit_.score(chunk, i, head, first);
    call_.load(args_->d_o, call_.no_features, unit_.s, head, chunk, d_o_);
    if (call_.has_denominator()) divide_output_gradient(chunk, head, first);
    B_.dim = unit_.visible();
    apply(kernel_, tokens, d_o_, values_transposed_, unit_.ld(), B_, false);
    if (call_.has_denominator())
      for (std::int64_t panel = 0; panel < B_.panels(); ++panel)
        for (std::int64_t t = 0; t < tokens; ++t) {
          T* row = B_.panel(panel) + t * kTileStride<T>;
          for (std::int64_t c = 0; c < B_.width(panel); ++c) row[c] += d_den_[t];
        }
    if (args_->d_mixing != nullptr) mixing_gradient(tokens, i, head, first, part);
    if (!call_.has_denominator()) unit_.weigh(unit_.A, tokens, first);
    unit_.weigh(B_, tokens, first);
    unit_.apply_seen(B_, tokens, first, key_rows_, d_q_);
    unit_.add_seen(unit_.A, tokens, first, d_o_, d_values_);
    unit_.add_seen(B_, tokens, first, unit_.q, d_keys_);
    call_.store_gradient(args_->d_q, args_->in.q, call_.query_features, unit_.s, head, chunk, d_q_);
  }

  // dU = d_o / den and d_den = -(d_o . o) / den; leaves the weighted scores in A.
  void divide_output_gradient(const Chunk& chunk, std::int64_t head, std::int64_t first) {
    unit_.weigh(unit_.A, chunk.tokens, first);
    unit_.row_sums(chunk.tokens, inverse_);
    call_.load(args_->o, call_.no_features, unit_.s, head, chunk, o_);
    for (std::int64_t panel = 0; panel < o_.panels(); ++panel)
      kernel_.pair_dots(chunk.tokens, o_.padded_width(panel), d_o_.panel(panel), o_.panel(panel), panel > 0, d_den_);
    for (std::int64_t t = 0; t < chunk.tokens; ++t) {
      inverse_[t] = T(1) / inverse_[t];
      d_den_[t] *= -inverse_[t];
    }
    for (std::int64_t panel = 0; panel < d_o_.panels(); ++panel)
      kernel_.scale_rows(chunk.tokens, d_o_.padded_width(panel), inverse_, d_o_.panel(panel));
  }

  // dm[i, b] += sum over visible pairs of raw score x (dU . v + d_den). The raw scores are computed anew where the
  // denominator needed the weighted ones.
  void mixing_gradient(std::int64_t tokens, std::int64_t i, std::int64_t head, std::int64_t first, std::int64_t part) {
    T* to = d_mixing_->row(part, unit_.s, head, i);
    if (call_.has_denominator()) unit_.raw_scores(tokens);
    for (std::size_t b = 0; b + 1 < unit_.offsets.size() && unit_.offsets[b] < unit_.visible(); ++b) {
      T sum = T(0);
      for (std::int64_t t = 0; t < tokens; ++t) {
        const std::int64_t end =
            call_.token_causal ? std::min(unit_.offsets[b + 1], first + t + 1) : unit_.offsets[b + 1];
        for (std::int64_t c = unit_.offsets[b]; c < end; ++c) sum += at(unit_.A, t, c) * at(B_, t, c);
      }
      to[b] += sum;
    }
    if (call_.has_denominator()) unit_.weigh(unit_.A, tokens, first);
  }

  static T at(const Tile<T>& tile, std::int64_t t, std::int64_t c) {
    return tile.panel(c / kPanel<T>)[t * kTileStride<T> + c % kPanel<T>];
  }

  static void copy_rows(const Tile<T>& tile, std::int64_t tokens, T* to, std::int64_t ld) {
    for (std::int64_t panel = 0; panel < tile.panels(); ++panel)
      for (std::int64_t t = 0; t < tokens; ++t)
        std::copy_n(tile.panel(panel) + t * kTileStride<T>, tile.padded_width(panel), to + t * ld + panel * kPanel<T>);
  }
  static void fill_rows(const Tile<T>& tile, std::int64_t tokens, const T* from, std::int64_t ld) {
    for (std::int64_t panel = 0; panel < tile.panels(); ++panel)
      for (std::int64_t t = 0; t < tokens; ++t)
        std::copy_n(from + t * ld + panel * kPanel<T>, tile.padded_width(panel),
                    tile.panel(panel) + t * kTileStride<T>);
  }

  void store_key_gradients() {
    for (std::int64_t b = 0; b < unit_.s.blocks; ++b) {
      std::int64_t at = unit_.offsets[static_cast<std::size_t>(b)];
      call_.for_each_chunk(unit_.s, b, [&](const Chunk& chunk, const Chunk&) {
        fill_rows(d_q_, chunk.tokens, d_keys_ + at * key_width_, key_width_);
        fill_rows(d_v_, chunk.tokens, d_values_ + at * value_width_, value_width_);
        call_.store_gradient(args_->d_k, args_->in.k, call_.key_features, unit_.s, unit_.kv, chunk, d_q_);
        call_.store(args_->d_v, unit_.s, unit_.kv, chunk, d_v_, nullptr);
        at += chunk.tokens;
      });
    }
  }

  const CpuCall<T>& call_;
  const BackwardArgs* args_;
  MixingGradient<T>* d_mixing_;
  const Kernels<T>& kernel_;
  Unit<T> unit_;
  std::int64_t N_, key_width_, value_width_;
  T* key_rows_;           // phi(K) [N, Dk]
  T* values_transposed_;  // V^T [Dv, N]
  T* d_keys_;
  T* d_values_;
  Tile<T> o_, d_o_, d_q_, d_v_, B_;
  T* inverse_;
  T* d_den_;
};

}  // namespace

template <typename T>
std::size_t forward_workspace(const Problem& problem, int threads) {
  const CpuCall<T> call(problem);
  Workspace measure;
  for (int i = 0; i < threads; ++i) Forward<T>(call, nullptr, measure);
  return measure.used();
}

template <typename T>
void forward(const Problem& problem, const ForwardArgs& args, const Parallel& parallel, int threads) {
  const CpuCall<T> call(problem);
  Workspace workspace(args.run.workspace);
  std::deque<Forward<T>> forwards;
  for (int i = 0; i < threads; ++i) forwards.emplace_back(call, &args, workspace);
  Team(parallel, threads).for_each(call.units(), [&](int worker, std::int64_t unit) {
    forwards[static_cast<std::size_t>(worker)].run(call, args, unit);
  });
}

template <typename T>
std::size_t backward_workspace(const Problem& problem, int threads) {
  const CpuCall<T> call(problem);
  Workspace measure;
  const MixingGradient<T> d_mixing(measure, call, nullptr);
  for (int i = 0; i < threads; ++i) Backward<T>(call, nullptr, nullptr, measure);
  return measure.used();
}

template <typename T>
void backward(const Problem& problem, const BackwardArgs& args, const Parallel& parallel, int threads) {
  const CpuCall<T> call(problem);
  Workspace workspace(args.run.workspace);
  MixingGradient<T> d_mixing(workspace, call, static_cast<T*>(args.d_mixing));
  std::deque<Backward<T>> backwards;
  for (int i = 0; i < threads; ++i) backwards.emplace_back(call, &args, &d_mixing, workspace);
  Team(parallel, threads).for_each(d_mixing.parts(), [&](int worker, std::int64_t part) {
    d_mixing.clear(part);
    for (std::int64_t unit = d_mixing.first_unit(part); unit < d_mixing.first_unit(part + 1); ++unit)
      backwards[static_cast<std::size_t>(worker)].run(unit, part);
  });
  d_mixing.finish();
}

template std::size_t forward_workspace<float>(const Problem&, int);
template std::size_t forward_workspace<double>(const Problem&, int);
template void forward<float>(const Problem&, const ForwardArgs&, const Parallel&, int);
template void forward<double>(const Problem&, const ForwardArgs&, const Parallel&, int);
template std::size_t backward_workspace<float>(const Problem&, int);
template std::size_t backward_workspace<double>(const Problem&, int);
template void backward<float>(const Problem&, const BackwardArgs&, const Parallel&, int);
template void backward<double>(const Problem&, const BackwardArgs&, const Parallel&, int);

}  // namespace mhla::cpu::dense
