// The operator by its definition, in double: o_t = sum_s w(t, s) (q_t . k_s) v_s / denominator, with
// w(t, s) = m[block(t), block(s)] where t may see s and 0 elsewhere. Read this file first; the fast kernels compute the
// same.
#include <optional>
#include <vector>

#include "core/layout.hpp"
#include "core/validate.hpp"
#include "cpu/element.hpp"
#include "cpu/feature_map.hpp"
#include "mhla/attention.hpp"

namespace mhla::reference {
namespace {

using Matrix = std::vector<std::vector<double>>;

double read(const void* data, DType dtype, std::int64_t at) {
  return with_element_type(
      dtype, [&](auto tag) { return static_cast<double>(static_cast<const typename decltype(tag)::type*>(data)[at]); });
}

void write(void* data, DType dtype, std::int64_t at, double value) {
  with_element_type(dtype, [&](auto tag) {
    using Element = typename decltype(tag)::type;
    static_cast<Element*>(data)[at] = static_cast<Element>(value);
  });
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t r = 0; r < a.size(); ++r) sum += a[r] * b[r];
  return sum;
}

void add_scaled(std::vector<double>& to, double factor, const std::vector<double>& from) {
  for (std::size_t r = 0; r < to.size(); ++r) to[r] += factor * from[r];
}

Matrix zeros(std::size_t rows, std::int64_t columns) {
  return Matrix(rows, std::vector<double>(static_cast<std::size_t>(columns), 0.0));
}

// Everything one (sequence, head) needs, copied out in double.
struct Head {
  std::vector<std::int64_t> token;  // place in the batch row
  std::vector<std::int64_t> block;  // counted from the start of the sequence, initial state included
  std::vector<std::int64_t> slot;
  Matrix q, k, v, q_den, k_den;  // phi applied, q scaled
  Matrix mixing;
  std::vector<Matrix> S0;  // initial state, one per block
  Matrix z0;
};

class Operator {
 public:
  Operator(const Problem& problem, const Inputs& in) : p_(problem), in_(in), layout_(problem) {}

  const Layout& layout() const { return layout_; }
  bool normalized() const { return p_.options.normalizer != Normalizer::none; }

  Head head(const Sequence& sequence, std::int64_t h) const {
    Head out;
    for (std::int64_t b = 0; b < sequence.blocks; ++b) {
      const auto runs = layout_.runs(sequence, b);
      for (std::int64_t r = 0; r < runs.size(); ++r)
        for (std::int64_t n = 0; n < runs[r].count; ++n) {
          out.token.push_back(runs[r].token + n);
          out.block.push_back(layout_.first_block() + b);
          out.slot.push_back(runs[r].slot + n);
        }
    }
    const std::int64_t kv = kv_head(h);
    out.q = features(in_.q, sequence, out.token, h, p_.options.scale);
    out.k = features(in_.k, sequence, out.token, kv, 1.0);
    out.v = rows(in_.v, sequence, out.token, kv, p_.value_dim);
    out.q_den = p_.separate_denominator ? features(in_.q_den, sequence, out.token, h, p_.options.scale) : out.q;
    out.k_den = p_.separate_denominator ? features(in_.k_den, sequence, out.token, kv, 1.0) : out.k;
    const std::int64_t M = p_.mixing_blocks;
    out.mixing = zeros(static_cast<std::size_t>(M), M);
    for (std::int64_t i = 0; i < M; ++i)
      for (std::int64_t b = 0; b < M; ++b)
        out.mixing[i][b] = read(in_.mixing, state_type(), (p_.matrix_of(sequence.batch, h) * M + i) * M + b);
    for (std::int64_t b = 0; in_.initial.S != nullptr && b < p_.initial_blocks(); ++b) {
      out.S0.push_back(zeros(static_cast<std::size_t>(p_.key_dim), p_.value_dim));
      out.z0.emplace_back(static_cast<std::size_t>(p_.key_dim), 0.0);
      for (std::int64_t r = 0; r < p_.key_dim; ++r) {
        for (std::int64_t c = 0; c < p_.value_dim; ++c)
          out.S0[b][r][c] = read(in_.initial.S, state_type(), S_at(sequence, kv, p_.initial_blocks(), b, r, c));
        if (in_.initial.z != nullptr)
          out.z0[b][r] = read(in_.initial.z, state_type(), z_at(sequence, kv, p_.initial_blocks(), b, r));
      }
    }
    return out;
  }

  bool visible(const Head& head, std::size_t t, std::size_t s) const {
    switch (p_.options.masking) {
      case Masking::none:
        return true;
      case Masking::block_causal:
        return head.block[s] <= head.block[t];
      case Masking::token_causal:
        return s <= t;
    }
    return true;
  }

  double weight(const Head& head, std::size_t t, std::size_t s) const {
    return head.mixing[head.block[t]][head.block[s]];
  }

  // The query of another block at the same slot, which the authors' normaliser uses.
  std::optional<std::size_t> partner(const Head& head, std::int64_t block, std::int64_t slot) const {
    for (std::size_t t = 0; t < head.token.size(); ++t)
      if (head.block[t] == block && head.slot[t] == slot) return t;
    return std::nullopt;
  }

  double denominator(const Head& head, std::size_t t) const {
    double sum = p_.options.eps;
    if (p_.options.normalizer == Normalizer::authors) {
      for (std::int64_t b = 0; b < p_.mixing_blocks; ++b) {
        const auto other = partner(head, b, head.slot[t]);
        if (!other) continue;
        for (std::size_t s = 0; s < head.token.size(); ++s)
          if (head.block[s] == b) sum += head.mixing[head.block[t]][b] * dot(head.q_den[*other], head.k_den[s]);
      }
      return sum;
    }
    for (std::size_t s = 0; s < head.token.size(); ++s) {
      if (visible(head, t, s)) sum += weight(head, t, s) * dot(head.q_den[t], head.k_den[s]);
    }
    for (std::size_t b = 0; b < head.z0.size(); ++b)
      sum += head.mixing[head.block[t]][b] * dot(head.q_den[t], head.z0[b]);
    return sum;
  }

  std::int64_t kv_head(std::int64_t h) const { return h / (p_.heads / p_.kv_heads); }
  DType state_type() const { return accumulation_type(p_.dtype); }

  std::int64_t z_at(const Sequence& s, std::int64_t kv, std::int64_t blocks, std::int64_t b, std::int64_t r) const {
    return ((s.index * p_.kv_heads + kv) * blocks + b) * p_.key_dim + r;
  }
  std::int64_t S_at(const Sequence& s, std::int64_t kv, std::int64_t blocks, std::int64_t b, std::int64_t r,
                    std::int64_t c) const {
    return z_at(s, kv, blocks, b, r) * p_.value_dim + c;
  }

  template <typename Pointer>
  std::int64_t at(const BasicTensor<Pointer>& x, const Sequence& s, std::int64_t token, std::int64_t h) const {
    return s.batch * x.batch_stride + token * x.token_stride + h * x.head_stride;
  }

  Matrix rows(const ConstTensor& x, const Sequence& sequence, const std::vector<std::int64_t>& tokens, std::int64_t h,
              std::int64_t dim) const {
    Matrix out = zeros(tokens.size(), dim);
    for (std::size_t t = 0; t < tokens.size(); ++t)
      for (std::int64_t r = 0; r < dim; ++r) out[t][r] = read(x.data, p_.dtype, at(x, sequence, tokens[t], h) + r);
    return out;
  }

 private:
  Matrix features(const ConstTensor& x, const Sequence& sequence, const std::vector<std::int64_t>& tokens,
                  std::int64_t h, double scale) const {
    Matrix out = rows(x, sequence, tokens, h, p_.key_dim);
    for (auto& row : out)
      for (auto& e : row) e = scale * (phi(p_.options.feature_map, e) + p_.options.feature_eps);
    return out;
  }

  const Problem& p_;
  const Inputs& in_;
  Layout layout_;
};

void write_final_state(const Problem& p, const Operator& op, const ForwardArgs& args, const Sequence& sequence,
                       std::int64_t kv, const Head& head) {
  const DType type = op.state_type();
  for (std::int64_t b = 0; b < p.final_blocks(); ++b)
    for (std::int64_t r = 0; r < p.key_dim; ++r) {
      const auto at = static_cast<std::size_t>(b);
      for (std::int64_t c = 0; c < p.value_dim; ++c) {
        double sum = at < head.S0.size() ? head.S0[at][r][c] : 0.0;
        for (std::size_t s = 0; s < head.token.size(); ++s)
          if (head.block[s] == b) sum += head.k[s][r] * head.v[s][c];
        write(args.final_state.S, type, op.S_at(sequence, kv, p.final_blocks(), b, r, c), sum);
      }
      if (args.final_state.z == nullptr) continue;
      double sum = at < head.z0.size() ? head.z0[at][r] : 0.0;
      for (std::size_t s = 0; s < head.token.size(); ++s)
        if (head.block[s] == b) sum += head.k_den[s][r];
      write(args.final_state.z, type, op.z_at(sequence, kv, p.final_blocks(), b, r), sum);
    }
}

}  // namespace

void forward(const Problem& problem, const ForwardArgs& args) {
  validate(problem);
  validate(problem, args);
  const Operator op(problem, args.in);
  for (std::int64_t n = 0; n < op.layout().sequences(); ++n)
    for (std::int64_t h = 0; h < problem.heads; ++h) {
      const Sequence sequence = op.layout().sequence(n);
      const Head head = op.head(sequence, h);
      for (std::size_t t = 0; t < head.token.size(); ++t) {
        std::vector<double> o(static_cast<std::size_t>(problem.value_dim), 0.0);
        for (std::size_t s = 0; s < head.token.size(); ++s) {
          if (op.visible(head, t, s)) add_scaled(o, op.weight(head, t, s) * dot(head.q[t], head.k[s]), head.v[s]);
        }
        for (std::size_t b = 0; b < head.S0.size(); ++b)
          for (std::size_t r = 0; r < head.q[t].size(); ++r)
            add_scaled(o, head.mixing[head.block[t]][b] * head.q[t][r], head.S0[b][r]);
        const double den = op.normalized() ? op.denominator(head, t) : 1.0;
        for (std::size_t c = 0; c < o.size(); ++c)
          write(args.o.data, problem.dtype, op.at(args.o, sequence, head.token[t], h) + static_cast<std::int64_t>(c),
                o[c] / den);
      }
      if (args.final_state.S != nullptr && h % (problem.heads / problem.kv_heads) == 0)
        write_final_state(problem, op, args, sequence, op.kv_head(h), head);
    }
}

namespace {

// Gradients with respect to phi(k), v and the initial state, summed over the query heads a kv head serves.
struct KeyGradients {
  Matrix k, v, k_den;
  std::vector<Matrix> S0;
  Matrix z0;
};

// Gradients with respect to scale * phi(q).
struct QueryGradients {
  Matrix q, q_den;
};

void numerator_backward(const Operator& op, const Head& head, std::size_t t, const std::vector<double>& dU,
                        QueryGradients& query, KeyGradients& key, Matrix& d_mixing) {
  const auto i = head.block[t];
  for (std::size_t s = 0; s < head.token.size(); ++s) {
    if (!op.visible(head, t, s)) continue;
    const double w = op.weight(head, t, s);
    const double a = dot(head.q[t], head.k[s]);
    const double g = dot(dU, head.v[s]);
    add_scaled(key.v[s], w * a, dU);
    add_scaled(query.q[t], w * g, head.k[s]);
    add_scaled(key.k[s], w * g, head.q[t]);
    d_mixing[i][head.block[s]] += a * g;
  }
  for (std::size_t b = 0; b < head.S0.size(); ++b)
    for (std::size_t r = 0; r < head.q[t].size(); ++r) {
      const double g = dot(head.S0[b][r], dU);
      query.q[t][r] += head.mixing[i][b] * g;
      d_mixing[i][b] += head.q[t][r] * g;
      add_scaled(key.S0[b][r], head.mixing[i][b] * head.q[t][r], dU);
    }
}

void denominator_backward(const Problem& p, const Operator& op, const Head& head, std::size_t t, double d_den,
                          QueryGradients& query, KeyGradients& key, Matrix& d_mixing) {
  const auto i = head.block[t];
  const auto pair = [&](std::size_t query_token, std::size_t s) {
    const auto b = head.block[s];
    d_mixing[i][b] += d_den * dot(head.q_den[query_token], head.k_den[s]);
    add_scaled(query.q_den[query_token], d_den * head.mixing[i][b], head.k_den[s]);
    add_scaled(key.k_den[s], d_den * head.mixing[i][b], head.q_den[query_token]);
  };
  for (std::size_t s = 0; s < head.token.size(); ++s) {
    if (p.options.normalizer == Normalizer::authors) {
      if (const auto other = op.partner(head, head.block[s], head.slot[t])) pair(*other, s);
    } else if (op.visible(head, t, s)) {
      pair(t, s);
    }
  }
  for (std::size_t b = 0; b < head.z0.size(); ++b) {
    d_mixing[i][b] += d_den * dot(head.q_den[t], head.z0[b]);
    add_scaled(query.q_den[t], d_den * head.mixing[i][b], head.z0[b]);
    add_scaled(key.z0[b], d_den * head.mixing[i][b], head.q_den[t]);
  }
}

void final_state_backward(const Problem& p, const Operator& op, const BackwardArgs& args, const Sequence& sequence,
                          std::int64_t kv, const Head& head, KeyGradients& key) {
  const DType type = op.state_type();
  for (std::int64_t b = 0; b < p.final_blocks(); ++b)
    for (std::int64_t r = 0; r < p.key_dim; ++r) {
      const bool initial = static_cast<std::size_t>(b) < head.S0.size();
      for (std::int64_t c = 0; args.d_final.S != nullptr && c < p.value_dim; ++c) {
        const double g = read(args.d_final.S, type, op.S_at(sequence, kv, p.final_blocks(), b, r, c));
        if (initial) key.S0[b][r][c] += g;
        for (std::size_t s = 0; s < head.token.size(); ++s) {
          if (head.block[s] != b) continue;
          key.k[s][r] += g * head.v[s][c];
          key.v[s][c] += g * head.k[s][r];
        }
      }
      if (args.d_final.z == nullptr) continue;
      const double g = read(args.d_final.z, type, op.z_at(sequence, kv, p.final_blocks(), b, r));
      if (initial) key.z0[b][r] += g;
      for (std::size_t s = 0; s < head.token.size(); ++s)
        if (head.block[s] == b) key.k_den[s][r] += g;
    }
}

}  // namespace

void backward(const Problem& problem, const BackwardArgs& args) {
  validate(problem);
  validate(problem, args);
  const Operator op(problem, args.in);
  const Problem& p = problem;
  const std::int64_t M = p.mixing_blocks;
  const std::int64_t group = p.heads / p.kv_heads;

  // Through scale * (phi(x) + eps): x is the raw element beside which the gradient is written.
  const auto write_features = [&](const Tensor& to, const ConstTensor& x, const Sequence& s, const Head& head,
                                  std::int64_t h, const Matrix& gradient, double scale) {
    for (std::size_t t = 0; t < head.token.size(); ++t)
      for (std::int64_t r = 0; r < p.key_dim; ++r) {
        const double raw = read(x.data, p.dtype, op.at(x, s, head.token[t], h) + r);
        write(to.data, p.dtype, op.at(to, s, head.token[t], h) + r,
              gradient[t][r] * scale * phi_derivative(p.options.feature_map, raw));
      }
  };
  const auto sum = [](Matrix a, const Matrix& b) {
    for (std::size_t t = 0; t < a.size(); ++t) add_scaled(a[t], 1.0, b[t]);
    return a;
  };

  std::vector<Matrix> d_mixing(static_cast<std::size_t>(p.mixing_matrices()), zeros(static_cast<std::size_t>(M), M));
  for (std::int64_t n = 0; n < op.layout().sequences(); ++n)
    for (std::int64_t kv = 0; kv < p.kv_heads; ++kv) {
      const Sequence sequence = op.layout().sequence(n);
      KeyGradients key;
      Head head;
      for (std::int64_t h = kv * group; h < (kv + 1) * group; ++h) {
        head = op.head(sequence, h);
        if (h == kv * group) {
          key = {zeros(head.token.size(), p.key_dim), zeros(head.token.size(), p.value_dim),
                 zeros(head.token.size(), p.key_dim),
                 std::vector<Matrix>(head.S0.size(), zeros(static_cast<std::size_t>(p.key_dim), p.value_dim)),
                 zeros(head.z0.size(), p.key_dim)};
        }
        QueryGradients query{zeros(head.token.size(), p.key_dim), zeros(head.token.size(), p.key_dim)};
        Matrix& d_m = d_mixing[static_cast<std::size_t>(p.matrix_of(sequence.batch, h))];
        std::vector<std::vector<double>> dU = op.rows(args.d_o, sequence, head.token, h, p.value_dim);
        const Matrix o = op.normalized() ? op.rows(args.o, sequence, head.token, h, p.value_dim) : Matrix{};
        for (std::size_t t = 0; t < head.token.size(); ++t) {
          if (op.normalized()) {
            const double den = op.denominator(head, t);
            const double d_den = -dot(dU[t], o[t]) / den;
            for (auto& e : dU[t]) e /= den;
            denominator_backward(p, op, head, t, d_den, query, key, d_m);
          }
          numerator_backward(op, head, t, dU[t], query, key, d_m);
        }
        if (p.separate_denominator) {
          write_features(args.d_q, args.in.q, sequence, head, h, query.q, p.options.scale);
          write_features(args.d_q_den, args.in.q_den, sequence, head, h, query.q_den, p.options.scale);
        } else {
          write_features(args.d_q, args.in.q, sequence, head, h, sum(query.q, query.q_den), p.options.scale);
        }
      }
      final_state_backward(p, op, args, sequence, kv, head, key);
      if (p.separate_denominator) {
        write_features(args.d_k, args.in.k, sequence, head, kv, key.k, 1.0);
        write_features(args.d_k_den, args.in.k_den, sequence, head, kv, key.k_den, 1.0);
      } else {
        write_features(args.d_k, args.in.k, sequence, head, kv, sum(key.k, key.k_den), 1.0);
      }
      for (std::size_t t = 0; t < head.token.size(); ++t)
        for (std::int64_t c = 0; c < p.value_dim; ++c)
          write(args.d_v.data, p.dtype, op.at(args.d_v, sequence, head.token[t], kv) + c, key.v[t][c]);
      for (std::int64_t b = 0; args.d_initial.S != nullptr && b < p.initial_blocks(); ++b)
        for (std::int64_t r = 0; r < p.key_dim; ++r) {
          for (std::int64_t c = 0; c < p.value_dim; ++c)
            write(args.d_initial.S, op.state_type(), op.S_at(sequence, kv, p.initial_blocks(), b, r, c),
                  key.S0[b][r][c]);
          if (args.d_initial.z != nullptr)
            write(args.d_initial.z, op.state_type(), op.z_at(sequence, kv, p.initial_blocks(), b, r), key.z0[b][r]);
        }
    }
  if (args.d_mixing == nullptr) return;
  for (std::size_t n = 0; n < d_mixing.size(); ++n)
    for (std::int64_t i = 0; i < M; ++i)
      for (std::int64_t b = 0; b < M; ++b)
        write(args.d_mixing, op.state_type(), (static_cast<std::int64_t>(n) * M + i) * M + b, d_mixing[n][i][b]);
}

}  // namespace mhla::reference
