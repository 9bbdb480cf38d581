// Loss and validation of generators.
#include "tasks/generate/generate_task.hpp"

#include <algorithm>

#include "data/random_stream.hpp"
#include "io/png.hpp"
#include "mhla/types.hpp"
#include "tasks/generate/denoising_error.hpp"
#include "tasks/generate/pictures.hpp"

namespace mhla::tasks {
namespace {

// Over the pictures of all processes.
DenoisingError of_all(const DenoisingError& own, train::Communicator& communicator) {
  const auto pictures = static_cast<double>(own.pictures), early = static_cast<double>(own.early_pictures);
  const at::Tensor sums = at::tensor({own.all * pictures, own.early * early, pictures, early}, at::kDouble);
  communicator.all_reduce(sums);
  const auto* const sum = sums.data_ptr<double>();
  const auto mean = [](double total, double count) { return count > 0 ? total / count : 0.0; };
  return {mean(sum[0], sum[2]), mean(sum[1], sum[3]), static_cast<std::int64_t>(sum[2]),
          static_cast<std::int64_t>(sum[3])};
}

}  // namespace

GenerateTask::GenerateTask(std::shared_ptr<models::Generator> model, std::shared_ptr<const diffusion::Process> process,
                           TrainingExamples& examples, GenerateTaskOptions options, at::Device device,
                           train::Communicator& communicator, SaveBest save_best)
    : model_(std::move(model)), process_(std::move(process)), examples_(examples), options_(std::move(options)),
      device_(device), communicator_(communicator), save_best_(std::move(save_best)),
      random_(at::globalContext().defaultGenerator(device).clone()) {}

void GenerateTask::start(std::int64_t epoch, std::int64_t first_batch) {
  examples_.training->start(epoch, first_batch);
  epoch_ = epoch;
  batch_ = first_batch;
}

// Steps, noise and dropped classes are drawn for the batch of all processes, of which each takes its part: so the
// result does not depend on their number. The mean is over the whole batch, pictures that could not be read included.
at::Tensor GenerateTask::loss() {
  const auto examples = examples_.training->next();
  if (!examples) throw Error("the training pictures ended before the epoch did");
  const std::int64_t count = examples->labels.size(0), all = samples();
  data::RandomStream key{options_.seed, static_cast<std::uint64_t>(epoch_), static_cast<std::uint64_t>(batch_++)};
  random_.set_current_seed(key.bits());
  if (count == 0) return model_->parameters().front().sum() * 0.0;
  const at::Tensor x_0 = examples->x_0.to(device_, true);
  const auto own = [&](const at::Tensor& drawn) { return drawn.narrow(0, examples->first, count); };
  const at::Tensor t = own(process_->drawn_steps(all, random_, device_));
  const at::Tensor dropped = own(at::rand({all}, random_, x_0.options())).lt(options_.drop_class);
  const at::Tensor noise = own(at::randn({all, x_0.size(1), x_0.size(2), x_0.size(3)}, random_, x_0.options()));
  const at::Tensor labels = examples->labels.to(device_, true).masked_fill(dropped, model_->null_class());
  const at::Tensor x_t = process_->noised(x_0, t, noise);
  const at::Tensor output = model_->forward(x_t, process_->times(t), labels).to(at::kFloat);
  return process_->loss(output, x_0, x_t, t, noise).sum() * (1.0 / static_cast<double>(all));
}

train::Evaluation GenerateTask::evaluate() {
  train::Evaluation evaluation;
  if (examples_.validation) {
    DenoisingError error;
    examples_.validation->start(0, 0);
    // Batches at equal distances, since pictures are in the order of their classes.
    const std::int64_t batches = examples_.validation->batches(), size = examples_.validation->batch();
    const std::int64_t wanted = std::clamp<std::int64_t>(options_.val_images / size, 1, batches);
    for (std::int64_t batch = 0; const auto examples = examples_.validation->next(); ++batch)
      if (batch * wanted / batches != (batch + 1) * wanted / batches && examples->labels.size(0) > 0)
        error += denoising_error(*model_, *process_, examples->x_0.to(device_, true),
                                 examples->labels.to(device_, true), options_.seed, batch * size + examples->first);
    error = of_all(error, communicator_);
    evaluation.numbers = {{"val/mse", error.all}, {"val/mse_early", error.early}};
    evaluation.score = -error.all;
  }
  if (communicator_.leads() && !options_.samples.classes.empty()) evaluation.picture = drawn_samples();
  return evaluation;
}

std::vector<std::byte> GenerateTask::drawn_samples() {
  const at::Tensor drawn = sample(*model_, *process_, options_.samples);
  const io::Image grid = grid_of(pixels_of(drawn), options_.columns);
  return io::encode_png(grid.rgb, grid.width, grid.height);
}

}  // namespace mhla::tasks
