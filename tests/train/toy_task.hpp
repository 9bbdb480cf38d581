// A small model with MHLA, dropout and a batch norm on generated data: everything a checkpoint must keep.
#pragma once

#include <thread>

#include "mhla/torch.hpp"
#include "tensor_io/tensors.hpp"
#include "train/communicator.hpp"
#include "train/task.hpp"

namespace mhla::train::testing {

struct ToyModel : torch::nn::Module {
  explicit ToyModel(double dropout) : dropout_rate(dropout) {
    embed = register_module("embed", torch::nn::Linear(4, 8));
    attention = register_module(
        "attention", nn::MultiHeadLinearAttention(nn::MultiHeadLinearAttentionOptions(8, 2, Partition::line(12, 4))));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    head = register_module("head", torch::nn::Linear(8, 3));
    unused = register_parameter("unused", torch::ones({2, 2}));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor tokens = attention(embed(x));
    tokens = torch::dropout(tokens, dropout_rate, is_training());
    const at::Tensor pooled = tokens.mean(1);
    return head(with_batch_norm ? norm(pooled) : pooled);
  }

  double dropout_rate;
  bool with_batch_norm = true;
  torch::nn::Linear embed = nullptr, head = nullptr;
  nn::MultiHeadLinearAttention attention = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
  at::Tensor unused;
};

class ToyTask : public Task {
 public:
  static constexpr std::int64_t kBatch = 8, kBatches = 7;

  explicit ToyTask(Communicator& communicator, double dropout = 0.1, at::Device device = at::kCPU)
      : communicator_(communicator), device_(device) {
    torch::manual_seed(3);
    model_ = std::make_shared<ToyModel>(dropout);
    model_->to(device);
  }

  ToyModel& toy() { return *model_; }
  torch::nn::Module& model() override { return *model_; }
  bool decays(const std::string& parameter) const override { return parameter != "attention.mixing"; }
  void after_step() override { model_->attention->project_(); }
  std::string unit() const override { return "samples"; }
  std::int64_t samples() const override { return kBatch; }
  std::int64_t batches() const override { return kBatches; }
  void start(std::int64_t epoch, std::int64_t first_batch) override {
    epoch_ = epoch;
    batch_ = first_batch;
  }

  at::Tensor loss() override {
    if (step_time > std::chrono::milliseconds(0)) std::this_thread::sleep_for(step_time);
    const auto [x, labels] = data(epoch_ * kBatches + batch_++);
    const std::int64_t share = kBatch / communicator_.size(), first = share * communicator_.rank();
    const at::Tensor logits = model_->forward(x.narrow(0, first, share));
    const at::Tensor sum =
        torch::nn::functional::cross_entropy(logits, labels.narrow(0, first, share),
                                             torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
    return loss_factor * sum / kBatch;
  }

  Evaluation evaluate() override {
    const auto [x, labels] = data(-1);
    const double accuracy = model_->forward(x).argmax(1).eq(labels).to(at::kDouble).mean().item<double>();
    return {accuracy, {{"val/accuracy", accuracy}}};
  }
  void save_best(const Evaluation&) override {
    ++best_saved;
    if (!best_file.empty()) io::save_tensors(best_file, io::named_tensors(*model_));
  }

  std::chrono::milliseconds step_time{0};
  double loss_factor = 1.0;
  int best_saved = 0;
  std::filesystem::path best_file;  // where it keeps the best weights, if anywhere

 private:
  // Its own generator: neither the rank nor the state of torch's random numbers changes the data.
  std::pair<at::Tensor, at::Tensor> data(std::int64_t index) const {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(index + 100));
    const at::Tensor labels = at::randint(3, {kBatch}, generator, at::kLong);
    const at::Tensor x = at::randn({kBatch, 12, 4}, generator) + labels.view({kBatch, 1, 1}).to(at::kFloat);
    return {x.to(device_), labels.to(device_)};
  }

  Communicator& communicator_;
  at::Device device_;
  std::shared_ptr<ToyModel> model_;
  std::int64_t epoch_ = 0, batch_ = 0;
};

}  // namespace mhla::train::testing
