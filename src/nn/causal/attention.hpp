// Attention layers of language models: softmax, linear attention, GLA or MHLA behind one interface, for whole
// sequences, packed documents, and sequences that go on from a state.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "mhla/mixing.hpp"
#include "nn/causal/feature_map.hpp"
#include "nn/causal/line.hpp"

namespace mhla::nn {

enum class CausalKind { softmax, linear, gla, mhla };
std::string_view name(CausalKind value);
CausalKind parse_causal_kind(std::string_view text);

struct CausalOptions {
  CausalKind kind = CausalKind::mhla;
  std::int64_t dim = 0;
  std::int64_t heads = 0, kv_heads = 0;         // a head of keys and values serves heads / kv_heads query heads
  std::int64_t key_width = 0, value_width = 0;  // of a head
  double norm_eps = 1e-6;
  double rotary_base = 10000.0;  // not of gla

  // Of all but softmax.
  bool output_gate = true;         // silu(a linear layer of the input) multiplies the normalised output
  bool short_convolution = false;  // of queries, keys and values, over four tokens

  // Of linear and mhla.
  CausalMap feature_map = CausalMap::relu;
  std::int64_t block_size = 64;
  at::Tensor mixing{};  // of mhla: initial, [M, M]
  bool mixing_frozen = false;
  BeyondTrained beyond = BeyondTrained::error;  // what mhla does with more than M blocks
};

// What a layer remembers of the tokens it has seen: tensors by name, whose first axis is the batch. Layers change them
// in place; one that is not needed is [0]. What grows with the tokens grows on axis 2, from nothing.
using LayerState = std::map<std::string, at::Tensor>;

class CausalAttention : public torch::nn::Module {
 public:
  explicit CausalAttention(const CausalOptions& options) : options(options) {}

  // x: [B, T, C] -> [B, T, C]. A state goes on with these tokens; it is not differentiable. reserve() comes first.
  virtual at::Tensor forward(const at::Tensor& x, const Line& line, LayerState* state = nullptr) = 0;

  // Of rows that have seen nothing. `like`: device and type of the activations.
  virtual LayerState new_state(std::int64_t batch, const at::TensorOptions& like) const = 0;

  // Makes room for rows of this many tokens. Throws an Error where the layer has none.
  virtual void reserve(LayerState& /*state*/, std::int64_t /*tokens*/) const {}

  // How many tokens of a row there is room for, before reserve() makes more.
  virtual std::int64_t room(const LayerState& /*state*/) const { return std::numeric_limits<std::int64_t>::max(); }

  // Brings what is known without the saved bytes back in order after a state was restored. `seen`: int64 [B].
  virtual void restored(LayerState& /*state*/, const at::Tensor& /*seen*/) const {}

  // The parameter [M, M, 1, 1, 1, 1]; undefined without one.
  virtual at::Tensor mixing() { return {}; }

  virtual void initialise() {}  // after the initial values that all linear layers have

  const CausalOptions options;
};

std::shared_ptr<CausalAttention> make_causal_attention(const CausalOptions& options);

}  // namespace mhla::nn
