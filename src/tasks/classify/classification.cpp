// Counting on the device, read once at the end.
#include "tasks/classify/classification.hpp"

#include <algorithm>

namespace mhla::tasks {
namespace {

double share_of(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

double Classification::top1_accuracy() const { return share_of(confusion.trace().item<std::int64_t>(), images); }
double Classification::top5_accuracy() const { return share_of(top5, images); }

Classification classify_all(models::Classifier& model, data::ImageLoader& loader, at::Device device,
                            train::Communicator& communicator) {
  const at::NoGradGuard no_grad;
  const std::int64_t classes = model.options.classes;
  const at::Tensor confusion = at::zeros({classes * classes}, at::TensorOptions(at::kLong).device(device));
  const at::Tensor top5 = at::zeros({}, confusion.options());
  const at::Tensor loss = at::zeros({}, confusion.options().dtype(at::kDouble));
  Classification result;
  loader.start(0);
  while (const auto batch = loader.next()) {
    result.bad += batch->bad;
    if (batch->labels.size(0) == 0) continue;
    const at::Tensor labels = batch->labels.to(device, true);
    const at::Tensor logits = model.forward(batch->images.to(device, true)).to(at::kFloat);
    loss.add_(at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum));
    const at::Tensor likely = std::get<1>(logits.topk(std::min<std::int64_t>(5, classes), 1));
    top5.add_(likely.eq(labels.unsqueeze(1)).sum());
    confusion.scatter_add_(0, labels * classes + likely.select(1, 0), at::ones_like(labels));
  }
  const at::Tensor counts = at::cat({confusion, top5.view({1})}).cpu();
  const at::Tensor sums = at::stack({loss.cpu(), at::scalar_tensor(static_cast<double>(result.bad), at::kDouble)});
  communicator.all_reduce(counts);
  communicator.all_reduce(sums);
  result.confusion = counts.narrow(0, 0, classes * classes).view({classes, classes}).clone();
  result.top5 = counts[classes * classes].item<std::int64_t>();
  result.images = result.confusion.sum().item<std::int64_t>();
  result.loss = result.images == 0 ? 0.0 : sums[0].item<double>() / static_cast<double>(result.images);
  result.bad = static_cast<std::int64_t>(sums[1].item<double>());
  return result;
}

}  // namespace mhla::tasks
