// Training of language models: the loss of the next token, and what they make of held-out text.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "data/tokens/windows.hpp"
#include "models/base/mixing_parameters.hpp"
#include "models/lm/lm.hpp"
#include "tasks/language/sample_text.hpp"
#include "text/tokenizer.hpp"
#include "train/communicator.hpp"
#include "train/task.hpp"

namespace mhla::tasks {

// Tokens to learn from and held-out ones, where there are such, and the tokenizer they were made with.
struct LanguageData {
  std::shared_ptr<const data::TokenDataset> training, validation;
  std::shared_ptr<const text::Tokenizer> tokenizer;
};

struct LanguageTaskOptions {
  std::int64_t context = 1024;
  std::int64_t batch = 1;  // windows of a batch, over all processes
  bool separate_documents = false;
  double mixing_rate = 1.0;  // of the mixing matrices, times the learning rate
  std::int64_t val_tokens = 1 << 20;
  std::uint64_t seed = 0;
  TextRequest text = {};  // written at every validation
};

class LanguageTask : public train::Task {
 public:
  using SaveBest = std::function<void(const train::Evaluation&)>;

  LanguageTask(std::shared_ptr<models::Lm> model, LanguageData data, LanguageTaskOptions options, at::Device device,
               train::Communicator& communicator, SaveBest save_best);

  torch::nn::Module& model() override { return *model_; }
  bool decays(const std::string& parameter) const override { return model_->decays(parameter); }
  double rate(const std::string& parameter) const override {
    return models::is_mixing(parameter) ? options_.mixing_rate : 1.0;
  }
  void after_step() override { model_->after_step(); }
  std::string unit() const override { return "tokens"; }
  std::int64_t samples() const override { return options_.batch * options_.context; }
  std::int64_t batches() const override { return windows_.batches(); }
  void start(std::int64_t epoch, std::int64_t first_batch) override { windows_.start(epoch, first_batch); }
  at::Tensor loss() override;
  train::Evaluation evaluate() override;
  void save_best(const train::Evaluation& evaluation) override { save_best_(evaluation); }

 private:
  // Cross-entropy of the next tokens of these windows, summed up.
  at::Tensor summed_loss(const data::TokenBatch& windows);
  void measure(train::Evaluation& evaluation);

  std::shared_ptr<models::Lm> model_;
  LanguageData data_;
  LanguageTaskOptions options_;
  at::Device device_;
  train::Communicator& communicator_;
  SaveBest save_best_;
  data::TokenWindows windows_;
  std::optional<std::int64_t> begin_;  // the token that begins a document that does not see the one before
};

}  // namespace mhla::tasks
