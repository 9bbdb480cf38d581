// A decoder-only language model with softmax attention, linear attention, GLA or MHLA in every layer, under the names
// of the authors' weights.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/base/model.hpp"
#include "models/lm/lm_block.hpp"
#include "models/lm/lm_design.hpp"
#include "models/lm/lm_state.hpp"

namespace mhla::models {

class Lm : public Model {
 public:
  using Config = LmOptions;

  explicit Lm(const LmOptions& options) : Lm(LmDesign(options)) {}
  explicit Lm(const LmDesign& design);

  // Offsets of documents in the batch, row after row, that do not see each other (nn::check_documents); empty: every
  // row is one sequence. Positions and blocks begin anew with each document. Prompts of different lengths can be filled
  // up at their ends: no token sees a later one.
  using Documents = std::vector<std::int64_t>;

  // ids: int64 [B, T] -> logits [B, T, vocabulary]
  at::Tensor forward(const at::Tensor& ids, const Documents& documents = {}) { return logits(hidden(ids, documents)); }

  // The two parts of it: what comes out of the last norm, [B, T, width], and its product with output_weight().
  at::Tensor hidden(const at::Tensor& ids, const Documents& documents = {});
  at::Tensor logits(const at::Tensor& hidden);
  const at::Tensor& output_weight() const {
    return head_ ? head_->weight : embeddings_->weight;
  }  // [vocabulary, width]

  // Of `batch` rows that have seen nothing, with room for `tokens` of each; it makes more where that is too little.
  // Like all functions on states, without gradients.
  LmState new_state(std::int64_t batch, std::int64_t tokens = 0) const;

  // Makes room for rows of this many tokens, so that parts of the state that share its memory can go on.
  void reserve(LmState& state, std::int64_t tokens) const;

  // A state whose tensors are given: `tensor` is asked for each by its layer and name, and shown that of a state that
  // has seen nothing. Throws an Error where there is no room for what rows have seen.
  using StateTensor = std::function<at::Tensor(std::size_t layer, const std::string& name, const at::Tensor& fresh)>;
  LmState state_with(const std::vector<std::int64_t>& seen, const StateTensor& tensor) const;

  // Rows go on with these tokens, each from where it is: ids [B, T] -> [B, T, width], as hidden() gives.
  at::Tensor extend(LmState& state, const at::Tensor& ids) const;

  // The same with the logits that come after the last token, [B, vocabulary]. Prompts may differ in length.
  at::Tensor prefill(LmState& state, const at::Tensor& ids);
  at::Tensor prefill(LmState& state, const std::vector<at::Tensor>& prompts);  // one [T] for each row
  at::Tensor step(LmState& state, const at::Tensor& ids) { return prefill(state, ids.unsqueeze(1)); }  // ids: [B]

  io::Json config() const override { return options; }
  bool decays(const std::string& name) const override;  // not mixing matrices
  void after_step() override;                           // mixing matrices stay in [0, 1]
  std::span<const SameLayer> weight_names() const override;
  void convert(const NamedTensors& targets, NamedTensors& stored, LoadReport& report) const override;
  Fit fit_from(const io::Json& from) const override;  // matrices of other numbers of blocks

  std::vector<at::Tensor> mixing_parameters() const;  // [M, M, 1, 1, 1, 1], of the layers that have one

  const LmOptions options;

 private:
  void initialise();
  void check_ids(const at::Tensor& ids) const;
  at::TensorOptions activations() const;  // device and type of states
  at::Tensor through_blocks(const at::Tensor& ids, const nn::Line& line, LmState* state) const;

  torch::nn::Embedding embeddings_;
  std::vector<std::shared_ptr<LmBlock>> blocks_;
  std::shared_ptr<nn::NormImpl> norm_;
  torch::nn::Linear head_ = nullptr;
};

}  // namespace mhla::models
