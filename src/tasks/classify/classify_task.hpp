// Training of image classifiers with soft targets.
#pragma once

#include <functional>
#include <memory>

#include "models/base/mixing_parameters.hpp"
#include "tasks/classify/classification.hpp"
#include "train/task.hpp"

namespace mhla::tasks {

class ClassifyTask : public train::Task {
 public:
  using SaveBest = std::function<void(const train::Evaluation&)>;

  // Without images to validate on, the newest weights are the best.
  ClassifyTask(std::shared_ptr<models::Classifier> model, data::ImageLoader& training, data::ImageLoader* validation,
               at::Device device, train::Communicator& communicator, double mixing_rate, SaveBest save_best);

  torch::nn::Module& model() override { return *model_; }
  bool decays(const std::string& parameter) const override { return model_->decays(parameter); }
  double rate(const std::string& parameter) const override { return models::is_mixing(parameter) ? mixing_rate_ : 1.0; }
  void after_step() override { model_->after_step(); }
  std::string unit() const override { return "images"; }
  std::int64_t samples() const override { return training_.options().batch; }
  std::int64_t batches() const override { return training_.batches(); }
  void start(std::int64_t epoch, std::int64_t first_batch) override { training_.start(epoch, first_batch); }
  at::Tensor loss() override;
  train::Evaluation evaluate() override;
  void save_best(const train::Evaluation& evaluation) override { save_best_(evaluation); }

 private:
  std::shared_ptr<models::Classifier> model_;
  data::ImageLoader& training_;
  data::ImageLoader* validation_;
  at::Device device_;
  train::Communicator& communicator_;
  double mixing_rate_;
  SaveBest save_best_;
};

}  // namespace mhla::tasks
