// Steps, and pieces of a prefill whose initial state are the summaries so far.
#include "nn/causal/block_memory.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "core/decode.hpp"
#include "mhla/torch.hpp"
#include "nn/causal/linear.hpp"
#include "nn/causal/mixing.hpp"
#include "torch/execution.hpp"
#include "torch/tensors.hpp"

namespace mhla::nn {
namespace {

constexpr std::int64_t kSlots = 2;        // axis of S
constexpr std::int64_t kLeastPiece = 64;  // blocks that are handed to the operator at once, at least

bool keeps_all_blocks(BeyondTrained beyond) {
  return beyond == BeyondTrained::error || beyond == BeyondTrained::interpolate;
}

// One memory, for one call.
class BlockMemory {
 public:
  BlockMemory(const DecodeConfig& layer, const at::Tensor& mixing, LayerState& state) : config_(layer), state_(state) {
    const at::Tensor& rows = part("k");
    config_.dtype = dispatch::dtype_of(rows, "state");
    config_.summary_dtype = dispatch::dtype_of(part("S"), "state");
    config_.batch = rows.size(0);
    config_.device = dispatch::mhla_device(rows);
    if (keeps_all_blocks(config_.beyond)) config_.max_tokens = part("S").size(kSlots) * config_.block_size;
    kept_ = kept_blocks(config_);
    mixing_ = mixing.detach().to(dispatch::scalar_type(accumulation_type(config_.dtype))).contiguous();
  }

  void open() {
    dispatch::TorchExecution execution(part("k"));
    decode_open(config_, {.q = {},
                          .k = {},
                          .v = {},
                          .o = {},
                          .mixing = dispatch::data_of(mixing_),
                          .memory = pointers(),
                          .run = execution.run(0)});
  }

  at::Tensor step(const BlockTokens& tokens) {
    dispatch::TorchExecution execution(tokens.q);
    at::Tensor o = at::empty({config_.batch, tokens.q.size(1), config_.heads, config_.value_dim}, tokens.q.options());
    decode_step(config_, tokens.q.size(1),
                {.q = dispatch::const_view(tokens.q),
                 .k = dispatch::const_view(tokens.k),
                 .v = dispatch::const_view(tokens.v),
                 .o = dispatch::mutable_view(o),
                 .mixing = dispatch::data_of(mixing_),
                 .memory = pointers(),
                 .run = execution.run(0)});
    return o;
  }

  // The open block first, then pieces that begin with a block.
  at::Tensor prefill(const BlockTokens& tokens, std::int64_t seen) {
    const std::int64_t all = tokens.q.size(1), size = config_.block_size;
    const auto between = [&](std::int64_t begin, std::int64_t end) {
      const auto part_of = [&](const at::Tensor& x) { return x.slice(1, begin, end); };
      return BlockTokens{part_of(tokens.q), part_of(tokens.k), part_of(tokens.v)};
    };
    std::int64_t begin = std::min(all, (size - seen % size) % size);
    std::vector<at::Tensor> outputs;
    if (begin > 0) outputs.push_back(step(between(0, begin)));
    while (begin < all) {
      const std::int64_t block = (seen + begin) / size;
      const std::int64_t blocks = std::max({kLeastPiece, config_.mixing_blocks, kept_.history(block)});
      const std::int64_t end = std::min(all, begin + blocks * size);
      outputs.push_back(piece(between(begin, end), block));
      begin = end;
    }
    return outputs.size() == 1 ? outputs.front() : at::cat(outputs, 1);
  }

 private:
  at::Tensor& part(const char* name) { return state_.at(name); }

  DecodeMemory pointers() {
    const auto data = [&](const char* name) {
      at::Tensor& tensor = part(name);
      return tensor.numel() == 0 ? nullptr : dispatch::mutable_data_of(tensor);
    };
    return {.S = data("S"),
            .P = data("P"),
            .diagonal = data("diagonal"),
            .folded_S = data("folded_S"),
            .k = data("k"),
            .v = data("v"),
            .tokens = static_cast<std::int64_t*>(data("tokens")),
            .arrivals = static_cast<std::int32_t*>(data("arrivals"))};
  }

  at::Tensor slots_of(std::int64_t first, std::int64_t end) {
    return at::arange(first, end, part("S").options().dtype(at::kLong)) % kept_.slots;
  }

  // The matrix of a call of `own` blocks from `block` on.
  at::Tensor mixing_of(std::int64_t block, std::int64_t own) {
    const std::int64_t blocks = block + own, trained = config_.mixing_blocks;
    if (blocks <= trained) return mixing_.slice(0, 0, blocks).slice(1, 0, blocks);
    const at::Tensor on_host = mixing_.cpu();
    const auto made = [&]<typename T>() {
      const std::span<const T> values(on_host.const_data_ptr<T>(), static_cast<std::size_t>(on_host.numel()));
      const std::int64_t n = kept_.history(block) + own;
      return torch::tensor(mixing_from(kept_, values, 1, block, own), on_host.options()).view({n, n});
    };
    const bool wide = on_host.scalar_type() == at::kDouble;
    return (wide ? made.operator()<double>() : made.operator()<float>()).to(mixing_.device());
  }

  at::Tensor piece(const BlockTokens& tokens, std::int64_t block) {
    const std::int64_t count = tokens.q.size(1), size = config_.block_size;
    const std::int64_t first = kept_.first(block), history = kept_.history(block), folded = history - (block - first);
    AttentionOptions call{.partition = Partition::line(count, size),
                          .feature_map = config_.options.feature_map,
                          .normalizer = Normalizer::none,
                          .masking = Masking::token_causal,
                          .scale = config_.options.scale};
    at::Tensor& S = part("S");
    if (history > 0) {
      std::vector<at::Tensor> parts;
      if (folded > 0) parts.push_back(part("folded_S").unsqueeze(kSlots));
      parts.push_back(S.index_select(kSlots, slots_of(first, block)).to(mixing_.scalar_type()));
      call.initial_S = at::cat(parts, kSlots);
      call.initial_tokens = history * size;
    }
    const AttentionResult result =
        attention_with_state(tokens.q, tokens.k, tokens.v, mixing_of(block, (count + size - 1) / size), call);
    take_in(result.S.slice(kSlots, folded), block, count / size);
    if (const std::int64_t rest = count % size; rest > 0)
      for (const auto& [name, x] : {std::pair{"k", &tokens.k}, {"v", &tokens.v}})
        part(name).narrow(kSlots, 0, rest).copy_(x->narrow(1, count - rest, rest).transpose(1, 2));
    part("tokens").fill_(block * size + count);
    open();
    return result.o;
  }

  // Summaries of blocks from first(block) on, `complete` of them new: the last ones get slots, older ones are folded.
  void take_in(const at::Tensor& summaries, std::int64_t block, std::int64_t complete) {
    if (complete == 0) return;
    const std::int64_t first = kept_.first(block), end = block + complete;
    if (kept_.folds) {
      const std::int64_t from = std::max<std::int64_t>(0, kept_.leaving(block)),
                         to = std::max<std::int64_t>(0, kept_.leaving(end - 1) + 1);
      if (to > from) part("folded_S").add_(summaries.slice(kSlots, from - first, to - first).sum(kSlots));
    }
    const std::int64_t recent = block + std::max<std::int64_t>(0, complete - kept_.slots);
    part("S").index_copy_(kSlots, slots_of(recent, end),
                          summaries.slice(kSlots, recent - first, end - first).to(part("S").scalar_type()));
  }

  DecodeConfig config_;
  KeptBlocks kept_;
  at::Tensor mixing_;
  LayerState& state_;
};

}  // namespace

LayerState new_block_memory(const DecodeConfig& layer, std::int64_t batch, const at::TensorOptions& like) {
  const auto zeros = [&](at::IntArrayRef sizes) { return at::zeros(sizes, like); };
  const bool wide = like.dtype() == caffe2::TypeMeta::Make<double>();
  const auto sums = like.dtype(wide ? at::kDouble : at::kFloat);
  const std::int64_t heads = layer.kv_heads, Dk = layer.key_dim, Dv = layer.value_dim;
  const bool folds = !keeps_all_blocks(layer.beyond);
  return {{"S", at::zeros({batch, heads, 0, Dk, Dv}, sums)},
          {"P", at::zeros({batch, heads, Dk, Dv}, sums)},
          {"diagonal", at::zeros({batch, heads}, sums)},
          {"folded_S", folds ? at::zeros({batch, heads, Dk, Dv}, sums) : at::zeros({0}, sums)},
          {"k", zeros({batch, heads, layer.block_size, Dk})},
          {"v", zeros({batch, heads, layer.block_size, Dv})},
          {"tokens", at::zeros({batch}, like.dtype(at::kLong))},
          {"arrivals", at::zeros({batch, heads + 1}, like.dtype(at::kInt))}};
}

std::int64_t room_of_blocks(const DecodeConfig& layer, const LayerState& state) {
  const std::int64_t slots = state.at("S").size(kSlots);
  if (keeps_all_blocks(layer.beyond)) return slots * layer.block_size;
  return slots == layer.mixing_blocks ? std::numeric_limits<std::int64_t>::max() : 0;
}

void reserve_blocks(const DecodeConfig& layer, const at::Tensor& mixing, LayerState& state, std::int64_t tokens) {
  at::Tensor& S = state.at("S");
  const std::int64_t trained = layer.mixing_blocks, there = S.size(kSlots);
  std::int64_t needed = trained;
  if (keeps_all_blocks(layer.beyond)) {
    needed = std::max<std::int64_t>(1, divide_up(tokens, layer.block_size));
    if (layer.beyond == BeyondTrained::error && needed > trained) refuse_blocks(needed, trained);
  }
  if (needed <= there) return;
  std::int64_t room = std::max(needed, 2 * there);
  if (layer.beyond == BeyondTrained::error) room = std::min(room, trained);
  S = at::constant_pad_nd(S, {0, 0, 0, 0, 0, room - there});
  if (there == 0) open_block(layer, mixing, state);
}

void open_block(const DecodeConfig& layer, const at::Tensor& mixing, LayerState& state) {
  BlockMemory(layer, mixing, state).open();
}

at::Tensor through_blocks(const DecodeConfig& layer, const at::Tensor& mixing, LayerState& state,
                          const BlockTokens& tokens, std::optional<std::int64_t> seen) {
  const at::ScalarType type = state.at("k").scalar_type();
  const BlockTokens cast{tokens.q.to(type), tokens.k.to(type), tokens.v.to(type)};
  BlockMemory memory(layer, mixing, state);
  return seen && tokens.q.size(1) > 1 ? memory.prefill(cast, *seen) : memory.step(cast);
}

}  // namespace mhla::nn
