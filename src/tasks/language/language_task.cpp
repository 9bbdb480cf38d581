// Loss and validation of language models.
#include "tasks/language/language_task.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "mhla/types.hpp"
#include "nn/linear_cross_entropy.hpp"
#include "tasks/language/language_batch.hpp"

namespace mhla::tasks {
namespace {

// A window has one token more than the model reads: every token but the first of all is asked for once.
data::TokenWindowOptions window_options(const LanguageTaskOptions& options, const train::Communicator& communicator) {
  return {.length = options.context + 1,
          .step = options.context,
          .batch = options.batch,
          .seed = options.seed,
          .rank = communicator.rank(),
          .world = communicator.size()};
}

data::TokenWindows training_windows(const LanguageData& data, const LanguageTaskOptions& options,
                                    const train::Communicator& communicator) {
  data::TokenWindowOptions windows = window_options(options, communicator);
  windows.train = true;
  return {data.training, windows};
}

// At equal distances over the split.
data::TokenWindows validation_windows(const LanguageData& data, const LanguageTaskOptions& options,
                                      const train::Communicator& communicator) {
  data::TokenWindowOptions windows = window_options(options, communicator);
  const std::int64_t room = data.validation->size() - windows.length;
  const std::int64_t wanted = std::max<std::int64_t>(1, options.val_tokens / options.context);
  windows.step = std::max(windows.step, wanted > 1 ? (room + wanted - 2) / (wanted - 1) : room + 1);
  return {data.validation, windows};
}

}  // namespace

LanguageTask::LanguageTask(std::shared_ptr<models::Lm> model, LanguageData data, LanguageTaskOptions options,
                           at::Device device, train::Communicator& communicator, SaveBest save_best)
    : model_(std::move(model)), data_(std::move(data)), options_(std::move(options)), device_(device),
      communicator_(communicator), save_best_(std::move(save_best)),
      windows_(training_windows(data_, options_, communicator)) {
  if (options_.separate_documents) begin_ = data_.training->index().begin;
}

at::Tensor LanguageTask::summed_loss(const data::TokenBatch& windows) {
  const LanguageBatch batch = language_batch(windows, begin_, device_);
  return nn::linear_cross_entropy(model_->hidden(batch.ids, batch.documents), model_->output_weight(), batch.labels,
                                  {.reduction = nn::LossReduction::sum});
}

at::Tensor LanguageTask::loss() {
  const auto windows = windows_.next();
  if (!windows) throw Error("the training tokens ended before the epoch did");
  return summed_loss(*windows) / static_cast<double>(samples());
}

// What one process finds is added to what the others do: the numbers do not depend on how many there are.
void LanguageTask::measure(train::Evaluation& evaluation) {
  data::TokenWindows windows = validation_windows(data_, options_, communicator_);
  windows.start(0);
  at::Tensor sums = at::zeros({2}, at::TensorOptions(at::kDouble).device(device_));
  while (const auto batch = windows.next()) {
    if (batch->rows == 0) continue;
    sums[0] += summed_loss(*batch);
    sums[1] += batch->rows * options_.context;
  }
  sums = sums.cpu();
  communicator_.all_reduce(sums);
  const double loss = sums[0].item<double>() / sums[1].item<double>();
  evaluation.numbers = {{"val/loss", loss}, {"val/perplexity", std::exp(loss)}};
  const data::TokenIndex& index = data_.validation->index();
  if (index.bytes > 0)
    evaluation.numbers.emplace_back("val/bits_per_byte", loss / std::numbers::ln2 * static_cast<double>(index.tokens) /
                                                             static_cast<double>(index.bytes));
  evaluation.score = -loss;
}

train::Evaluation LanguageTask::evaluate() {
  train::Evaluation evaluation;
  if (data_.validation) measure(evaluation);
  if (communicator_.leads() && options_.text.tokens > 0)
    evaluation.text = sample_text(*model_, *data_.tokenizer, options_.text);
  return evaluation;
}

}  // namespace mhla::tasks
