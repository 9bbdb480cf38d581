// Statistics of every layer's matrices.
#include "models/base/attention_statistics.hpp"

namespace mhla::models {
namespace {

void add_scaled(LayerStatistics& sum, double share, double rank, double effective_rank, double entropy,
                double sparsity) {
  sum.rank += share * rank;
  sum.effective_rank += share * effective_rank;
  sum.entropy += share * entropy;
  sum.sparsity += share * sparsity;
}

}  // namespace

std::vector<LayerStatistics> attention_statistics(Classifier& classifier, const at::Tensor& images) {
  const bool training = classifier.is_training();
  classifier.eval();
  std::vector<LayerStatistics> result;
  for (std::int64_t layer = 0; layer < classifier.layers(); ++layer) {
    const at::Tensor matrices = classifier.attention_matrix(images, layer).flatten(0, 1);
    LayerStatistics mean{.layer = layer, .tokens = matrices.size(-1)};
    for (const at::Tensor& matrix : matrices.unbind(0)) {
      const analysis::MatrixStatistics one = analysis::statistics(matrix);
      add_scaled(mean, 1.0 / static_cast<double>(matrices.size(0)), static_cast<double>(one.rank), one.effective_rank,
                 one.entropy, one.sparsity);
    }
    result.push_back(mean);
  }
  classifier.train(training);
  return result;
}

LayerStatistics mean_over_layers(const std::vector<LayerStatistics>& layers) {
  LayerStatistics mean;
  for (const LayerStatistics& layer : layers) {
    mean.tokens = layer.tokens;
    add_scaled(mean, 1.0 / static_cast<double>(layers.size()), layer.rank, layer.effective_rank, layer.entropy,
               layer.sparsity);
  }
  return mean;
}

}  // namespace mhla::models
