// Loss and validation of image classifiers.
#include "tasks/classify/classify_task.hpp"

#include "mhla/types.hpp"

namespace mhla::tasks {

ClassifyTask::ClassifyTask(std::shared_ptr<models::Classifier> model, data::ImageLoader& training,
                           data::ImageLoader* validation, at::Device device, train::Communicator& communicator,
                           double mixing_rate, SaveBest save_best)
    : model_(std::move(model)), training_(training), validation_(validation), device_(device),
      communicator_(communicator), mixing_rate_(mixing_rate), save_best_(std::move(save_best)) {}

// Divided by the size of the whole batch, images that could not be read included: so every image weighs the same
// however the batch is shared out.
at::Tensor ClassifyTask::loss() {
  const auto batch = training_.next();
  if (!batch) throw Error("the training images ended before the epoch did");
  if (batch->labels.size(0) == 0) return model_->parameters().front().sum() * 0.0;
  const at::Tensor logits = model_->forward(batch->images.to(device_, true));
  const at::Tensor log_probability = logits.to(at::kFloat).log_softmax(1);
  return (batch->targets.to(device_, true) * log_probability).sum() * (-1.0 / static_cast<double>(samples()));
}

train::Evaluation ClassifyTask::evaluate() {
  if (validation_ == nullptr) return {};
  const Classification result = classify_all(*model_, *validation_, device_, communicator_);
  return {result.top1_accuracy(),
          {{"val/top1", result.top1_accuracy()}, {"val/top5", result.top5_accuracy()}, {"val/loss", result.loss}}};
}

}  // namespace mhla::tasks
