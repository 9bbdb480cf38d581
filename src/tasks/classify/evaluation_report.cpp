// Tables, picture and page of an evaluation.
#include "tasks/classify/evaluation_report.hpp"

#include <fmt/format.h>

#include "report/heat_map.hpp"
#include "report/html.hpp"
#include "report/text.hpp"

namespace mhla::tasks {
namespace {

constexpr std::size_t kMostColumns = 20;  // of a confusion matrix that people can read as text

// Share of the images of a class called by its name.
double class_accuracy(const at::Tensor& confusion, std::int64_t label) {
  const auto images = confusion[label].sum().item<double>();
  return images == 0.0 ? 0.0 : confusion[label][label].item<double>() / images;
}

std::vector<std::string> confusion_header(const ClassifyEvaluation& evaluation) {
  std::vector<std::string> header{"class"};
  for (std::size_t c = 0; c < evaluation.classes.size(); ++c) header.push_back(std::to_string(c));
  header.emplace_back("right");
  return header;
}

std::vector<std::vector<std::string>> confusion_rows(const ClassifyEvaluation& evaluation) {
  std::vector<std::vector<std::string>> rows;
  const auto counts = evaluation.result.confusion.accessor<std::int64_t, 2>();
  for (std::int64_t i = 0; i < counts.size(0); ++i) {
    std::vector<std::string> row{fmt::format("{} {}", evaluation.classes[static_cast<std::size_t>(i)], i)};
    for (std::int64_t j = 0; j < counts.size(1); ++j)
      row.push_back(counts[i][j] == 0 ? "-" : std::to_string(counts[i][j]));
    row.push_back(fmt::format("{:.1f} %", 100.0 * class_accuracy(evaluation.result.confusion, i)));
    rows.push_back(row);
  }
  return rows;
}

std::vector<std::string> attention_header() {
  return {"layer", "N", "rank", "effective rank", "entropy, nats", "sparsity"};
}

std::vector<std::vector<std::string>> attention_rows(const std::vector<models::LayerStatistics>& layers) {
  std::vector<std::vector<std::string>> rows;
  rows.reserve(layers.size());
  for (const models::LayerStatistics& row : layers)
    rows.push_back({std::to_string(row.layer), std::to_string(row.tokens), fmt::format("{:.1f}", row.rank),
                    fmt::format("{:.1f}", row.effective_rank), fmt::format("{:.3f}", row.entropy),
                    fmt::format("{:.1f} %", 100.0 * row.sparsity)});
  return rows;
}

}  // namespace

std::string evaluation_text(const ClassifyEvaluation& evaluation) {
  const Classification& result = evaluation.result;
  std::string text;
  if (evaluation.classes.size() <= kMostColumns)
    text += report::table(confusion_header(evaluation), confusion_rows(evaluation)) + "\n";
  if (!evaluation.attention.empty())
    text += report::table(attention_header(), attention_rows(evaluation.attention)) + "\n";
  text +=
      fmt::format("top-1 {:.4f}, top-5 {:.4f}, loss {:.4f} on {} images of {} ({} images/s)\n", result.top1_accuracy(),
                  result.top5_accuracy(), result.loss, report::grouped(static_cast<double>(result.images)),
                  evaluation.data, report::three_digits(static_cast<double>(result.images) / evaluation.seconds));
  if (result.bad > 0) text += fmt::format("{} images could not be read and are not counted\n", result.bad);
  return text;
}

io::Json evaluation_json(const ClassifyEvaluation& evaluation) {
  const Classification& result = evaluation.result;
  io::Json confusion = io::Json::array();
  const auto counts = result.confusion.accessor<std::int64_t, 2>();
  for (std::int64_t i = 0; i < counts.size(0); ++i)
    confusion.push_back(std::vector(counts[i].data(), counts[i].data() + counts.size(1)));
  io::Json json = {{"model", evaluation.model}, {"data", evaluation.data},        {"images", result.images},
                   {"bad_images", result.bad},  {"top1", result.top1_accuracy()}, {"top5", result.top5_accuracy()},
                   {"loss", result.loss},       {"seconds", evaluation.seconds},  {"classes", evaluation.classes},
                   {"confusion", confusion}};
  for (const models::LayerStatistics& row : evaluation.attention)
    json["attention"].push_back({{"layer", row.layer},
                                 {"tokens", row.tokens},
                                 {"rank", row.rank},
                                 {"effective_rank", row.effective_rank},
                                 {"entropy", row.entropy},
                                 {"sparsity", row.sparsity}});
  return json;
}

std::vector<std::byte> confusion_png(const ClassifyEvaluation& evaluation) {
  const at::Tensor counts = evaluation.result.confusion.to(at::kDouble);
  const at::Tensor shares = (counts / counts.sum(1, true).clamp_min(1.0)).contiguous();
  return report::heat_map_png(
      {{shares.const_data_ptr<double>(), static_cast<std::size_t>(shares.numel())}, shares.size(0), shares.size(1)});
}

std::string evaluation_page(const ClassifyEvaluation& evaluation) {
  const Classification& result = evaluation.result;
  report::html::Report page(fmt::format("{:.2f} % right", 100.0 * result.top1_accuracy()),
                            fmt::format("{} on {}", evaluation.model, evaluation.data));
  page.key_figures({{fmt::format("{:.4f}", result.top1_accuracy()), "top-1"},
                    {fmt::format("{:.4f}", result.top5_accuracy()), "top-5"},
                    {report::grouped(static_cast<double>(result.images)), "images"},
                    {fmt::format("{:.4f}", result.loss), "mean cross entropy"}});
  page.section("What is taken for what");
  page.pictures({{confusion_png(evaluation), "Confusion", "row: the image's class, column: what it was called"}},
                report::colour_scale_svg(), "Share of a class's images, relative to guessing.");
  if (evaluation.classes.size() <= kMostColumns) page.table(confusion_header(evaluation), confusion_rows(evaluation));
  if (!evaluation.attention.empty()) {
    page.section("Attention, layer by layer");
    page.table(attention_header(), attention_rows(evaluation.attention));
    page.note("Means over heads and images. Rank: singular values above N machine epsilons of the largest, in double.");
  }
  return page.page();
}

}  // namespace mhla::tasks
