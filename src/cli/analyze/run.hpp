// Attention matrices of one input under softmax, linear attention and MHLA, compared.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "analysis/attention_matrix.hpp"
#include "io/json.hpp"
#include "mhla/mixing.hpp"
#include "report/html.hpp"
#include "report/line_chart.hpp"

namespace mhla::cli {

struct AnalysisInput {
  Partition partition = Partition::line(1, 1);
  torch::Tensor q, k;    // [N, d]
  torch::Tensor mixing;  // [M, M]; undefined: initialised by `init`
  MixingInit init = MixingInit::paper;
};

struct MethodStatistics {
  std::string method;  // "softmax", "linear", "mhla"
  std::int64_t tokens = 0;
  std::int64_t rank_bound = 0;
  analysis::MatrixStatistics values;
};

struct Analysis {
  std::vector<MethodStatistics> whole;  // at all N tokens
  std::vector<MethodStatistics> curve;  // at leading parts of the input, with the same block extents
  std::vector<report::html::Picture> heat_maps;
};

Analysis analyze(const AnalysisInput& input, const std::function<void(double)>& step);

// No method's rank exceeds its bound.
bool within_bounds(const Analysis& analysis);

report::LineChart rank_chart(const Analysis& analysis);
report::LineChart entropy_chart(const Analysis& analysis);
std::vector<std::string> statistics_header();
std::vector<std::vector<std::string>> statistics_rows(const std::vector<MethodStatistics>& rows);
io::Json statistics_json(const std::vector<MethodStatistics>& rows);

}  // namespace mhla::cli
