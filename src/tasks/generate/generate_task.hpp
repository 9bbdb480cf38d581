// Training of generators: the loss of predicted noise or velocities, the error on held-out pictures, and samples to
// look at.
#pragma once

#include <functional>
#include <memory>

#include "diffusion/process.hpp"
#include "models/base/mixing_parameters.hpp"
#include "tasks/generate/examples.hpp"
#include "tasks/generate/sampling.hpp"
#include "train/communicator.hpp"
#include "train/task.hpp"

namespace mhla::tasks {

struct GenerateTaskOptions {
  std::uint64_t seed = 0;
  double drop_class = 0.1;
  double mixing_rate = 1.0;  // of the mixing matrices, times the learning rate
  std::int64_t val_images = 2048;
  SampleRequest samples{};   // drawn at every evaluation
  std::int64_t columns = 1;  // of their grid
};

class GenerateTask : public train::Task {
 public:
  using SaveBest = std::function<void(const train::Evaluation&)>;

  GenerateTask(std::shared_ptr<models::Generator> model, std::shared_ptr<const diffusion::Process> process,
               TrainingExamples& examples, GenerateTaskOptions options, at::Device device,
               train::Communicator& communicator, SaveBest save_best);

  torch::nn::Module& model() override { return *model_; }
  bool decays(const std::string& parameter) const override { return model_->decays(parameter); }
  double rate(const std::string& parameter) const override {
    return models::is_mixing(parameter) ? options_.mixing_rate : 1.0;
  }
  void after_step() override { model_->after_step(); }
  std::string unit() const override { return "images"; }
  std::int64_t samples() const override { return examples_.training->batch(); }
  std::int64_t batches() const override { return examples_.training->batches(); }
  void start(std::int64_t epoch, std::int64_t first_batch) override;
  at::Tensor loss() override;
  train::Evaluation evaluate() override;
  void save_best(const train::Evaluation& evaluation) override { save_best_(evaluation); }

 private:
  std::vector<std::byte> drawn_samples();

  std::shared_ptr<models::Generator> model_;
  std::shared_ptr<const diffusion::Process> process_;
  TrainingExamples& examples_;
  GenerateTaskOptions options_;
  at::Device device_;
  train::Communicator& communicator_;
  SaveBest save_best_;
  at::Generator random_;
  std::int64_t epoch_ = 0, batch_ = 0;
};

}  // namespace mhla::tasks
