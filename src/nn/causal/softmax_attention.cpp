// Whole sequences, packed documents and cached ones through torch's softmax attention.
#include "nn/causal/softmax_attention.hpp"

#include <bit>
#include <vector>

#include "nn/causal/linear.hpp"

namespace mhla::nn {
namespace {

// q, k, v: [B, T, H, D] -> o.
at::Tensor softmax_of(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                      const std::optional<at::Tensor>& mask, bool causal) {
  return at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask, 0.0, causal,
                                          std::nullopt, q.size(2) != k.size(2))
      .transpose(1, 2);
}

// One query of every row, each over what its row has seen and nothing else.
at::Tensor softmax_of_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& places) {
  std::vector<at::Tensor> outputs;
  for (std::int64_t row = 0; row < q.size(0); ++row) {
    const std::int64_t seen = places[places.size(0) == 1 ? 0 : row].item<std::int64_t>() + 1;
    const auto of_row = [&](const at::Tensor& x, std::int64_t tokens) {
      return x.narrow(0, row, 1).narrow(1, 0, tokens);
    };
    outputs.push_back(softmax_of(of_row(q, 1), of_row(k, seen), of_row(v, seen), std::nullopt, /*causal=*/false));
  }
  return at::cat(outputs);
}

// Tokens of some documents as a batch, the shorter ones filled up at their ends: causal queries do not see that.
struct Bucket {
  std::vector<std::int64_t> starts, lengths;
  std::int64_t longest = 0;
};

// Documents by the power of two they fit into, so that at most half of a batch is filled up.
std::map<std::uint64_t, Bucket> buckets_of(const std::vector<std::int64_t>& offsets) {
  std::map<std::uint64_t, Bucket> buckets;
  for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
    const std::int64_t length = offsets[d + 1] - offsets[d];
    if (length == 0) continue;
    Bucket& bucket = buckets[std::bit_ceil(static_cast<std::uint64_t>(length))];
    bucket.starts.push_back(offsets[d]);
    bucket.lengths.push_back(length);
    bucket.longest = std::max(bucket.longest, length);
  }
  return buckets;
}

at::Tensor softmax_of_documents(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const std::vector<std::int64_t>& offsets) {
  std::vector<at::Tensor> outputs, places;
  for (const auto& item : buckets_of(offsets)) {
    const Bucket& bucket = item.second;
    const auto column = [](const std::vector<std::int64_t>& values) { return torch::tensor(values).unsqueeze(1); };
    const at::Tensor within = at::arange(bucket.longest), real = within < column(bucket.lengths);
    const at::Tensor tokens = at::where(real, column(bucket.starts) + within, 0);  // [documents, longest]
    const at::Tensor flat = tokens.flatten().to(q.device());
    const auto batch = [&](const at::Tensor& x) {
      return x.squeeze(0).index_select(0, flat).unflatten(0, tokens.sizes());
    };
    const at::Tensor kept = real.flatten().nonzero().squeeze(1).to(q.device());
    const at::Tensor o = softmax_of(batch(q), batch(k), batch(v), std::nullopt, /*causal=*/true);
    outputs.push_back(o.flatten(0, 1).index_select(0, kept));
    places.push_back(flat.index_select(0, kept));
  }
  if (outputs.empty()) return at::empty_like(q);
  return at::cat(outputs).index_select(0, at::cat(places).argsort()).unsqueeze(0);
}

}  // namespace

CausalSoftmax::CausalSoftmax(const CausalOptions& options)
    : CausalAttention(options),
      q_proj_(register_module("q_proj", without_bias(options.dim, options.heads * options.key_width))),
      k_proj_(register_module("k_proj", without_bias(options.dim, options.kv_heads * options.key_width))),
      v_proj_(register_module("v_proj", without_bias(options.dim, options.kv_heads * options.value_width))),
      o_proj_(register_module("o_proj", without_bias(options.heads * options.value_width, options.dim))) {}

LayerState CausalSoftmax::new_state(std::int64_t batch, const at::TensorOptions& like) const {
  return {{"k", at::zeros({batch, options.kv_heads, 0, options.key_width}, like)},
          {"v", at::zeros({batch, options.kv_heads, 0, options.value_width}, like)}};
}

std::int64_t CausalSoftmax::room(const LayerState& state) const {
  return std::min(state.at("k").size(2), state.at("v").size(2));
}

void CausalSoftmax::reserve(LayerState& state, std::int64_t tokens) const {
  const std::int64_t room = state.at("k").size(2);
  if (tokens <= room) return;
  const std::int64_t more = std::max(tokens, 2 * room) - room;
  for (const char* cached : {"k", "v"}) state[cached] = at::constant_pad_nd(state[cached], {0, 0, 0, more});
}

at::Tensor CausalSoftmax::forward(const at::Tensor& x, const Line& line, LayerState* state) {
  const auto rotated = [&](const at::Tensor& heads) {
    const auto& tables = line.rotary(options.key_width, options.rotary_base, accumulation_of(heads));
    return std::get<0>(fused::rotary_features(heads, tables, {.feature_map = FeatureMap::identity}));
  };
  const at::Tensor q = rotated(by_head(projected(x, q_proj_), options.heads));
  at::Tensor k = rotated(by_head(projected(x, k_proj_), options.kv_heads));
  at::Tensor v = by_head(projected(x, v_proj_), options.kv_heads);
  at::Tensor o;
  if (!line.documents().empty()) {
    o = softmax_of_documents(q, k, v, line.documents());
  } else if (state == nullptr) {
    o = softmax_of(q, k, v, std::nullopt, /*causal=*/true);
  } else {
    at::Tensor& keys = state->at("k");
    at::Tensor& values = state->at("v");
    const at::Tensor& places = line.positions();  // [1 or B, T]
    const auto cache = [&](at::Tensor& cached, const at::Tensor& fresh) {
      const at::Tensor by_token = fresh.transpose(1, 2).to(cached.scalar_type());
      cached.scatter_(2, places.unsqueeze(1).unsqueeze(3).expand(by_token.sizes()), by_token);
    };
    cache(keys, k), cache(values, v);
    k = keys.narrow(2, 0, line.end()).transpose(1, 2).to(q.scalar_type());
    v = values.narrow(2, 0, line.end()).transpose(1, 2).to(q.scalar_type());
    if (bits_of_rows(x)) {
      o = softmax_of_rows(q, k, v, places);
    } else if (line.seen() == 0) {
      o = softmax_of(q, k, v, std::nullopt, /*causal=*/true);
    } else if (line.seen() && x.size(1) == 1) {  // it sees all
      o = softmax_of(q, k, v, std::nullopt, /*causal=*/false);
    } else {
      const at::Tensor mask = at::arange(line.end(), places.options()) <= places.unsqueeze(2);  // [1 or B, T, end]
      o = softmax_of(q, k, v, mask.unsqueeze(1), /*causal=*/false);
    }
  }
  return projected(o.flatten(2), o_proj_);
}

}  // namespace mhla::nn
