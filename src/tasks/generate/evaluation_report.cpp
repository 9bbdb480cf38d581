// Tables, pictures and page of an evaluation.
#include "tasks/generate/evaluation_report.hpp"

#include <fmt/format.h>

#include "io/png.hpp"
#include "report/html.hpp"
#include "report/text.hpp"

namespace mhla::tasks {
namespace {

constexpr std::size_t kMostClasses = 40;  // that people want to read one by one

std::string counted(std::int64_t count) { return report::grouped(static_cast<double>(count)); }
std::string percent(double share) { return fmt::format("{:.1f} %", 100.0 * share); }

std::vector<const PictureScores*> all_scores(const GenerateEvaluation& evaluation) {
  std::vector<const PictureScores*> all = {&evaluation.judged};
  if (evaluation.baseline) all.push_back(&*evaluation.baseline);
  return all;
}

std::vector<std::string> score_header() {
  return {"pictures", "number", "Frechet", "precision", "recall", "class consistency"};
}

std::vector<std::vector<std::string>> score_rows(const GenerateEvaluation& evaluation) {
  std::vector<std::vector<std::string>> rows;
  for (const PictureScores* scores : all_scores(evaluation))
    rows.push_back({scores->name, counted(scores->pictures), report::three_digits(scores->frechet),
                    fmt::format("{:.3f}", scores->manifolds.precision), fmt::format("{:.3f}", scores->manifolds.recall),
                    percent(scores->consistency)});
  return rows;
}

std::vector<std::string> class_header(const GenerateEvaluation& evaluation) {
  std::vector<std::string> header = {"class consistency"};
  for (const PictureScores* scores : all_scores(evaluation)) header.push_back(scores->name);
  return header;
}

std::vector<std::vector<std::string>> class_rows(const GenerateEvaluation& evaluation) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t c = 0; c < evaluation.classes.size(); ++c) {
    rows.push_back({evaluation.classes[c]});
    for (const PictureScores* scores : all_scores(evaluation))
      rows.back().push_back(percent(scores->consistency_by_class[c]));
  }
  return rows;
}

std::string against(const GenerateEvaluation& evaluation) {
  return fmt::format("{} real pictures of {}, by {} features of {}", counted(evaluation.real_pictures), evaluation.data,
                     evaluation.features, evaluation.classifier);
}

io::Json scores_json(const PictureScores& scores) {
  return {{"name", scores.name},
          {"pictures", scores.pictures},
          {"frechet", scores.frechet},
          {"precision", scores.manifolds.precision},
          {"recall", scores.manifolds.recall},
          {"consistency", scores.consistency},
          {"consistency_by_class", scores.consistency_by_class}};
}

std::string denoising_line(const DenoisingError& error) {
  return fmt::format("denoising error on {} real pictures: {:.5f}, with little noise {:.5f}", counted(error.pictures),
                     error.all, error.early);
}

}  // namespace

std::string evaluation_text(const GenerateEvaluation& evaluation) {
  std::string text = fmt::format("{}\nagainst {}\n\n", evaluation.pictures, against(evaluation));
  text += report::table(score_header(), score_rows(evaluation)) + "\n";
  if (evaluation.classes.size() <= kMostClasses)
    text += report::table(class_header(evaluation), class_rows(evaluation)) + "\n";
  if (evaluation.denoising) text += denoising_line(*evaluation.denoising) + "\n";
  for (const std::string& note : evaluation.notes) text += fmt::format("note: {}\n", note);
  return text;
}

io::Json evaluation_json(const GenerateEvaluation& evaluation) {
  io::Json json = {{"pictures", evaluation.pictures},
                   {"classifier", evaluation.classifier},
                   {"data", evaluation.data},
                   {"classes", evaluation.classes},
                   {"features", evaluation.features},
                   {"real_pictures", evaluation.real_pictures},
                   {"scores", scores_json(evaluation.judged)},
                   {"notes", evaluation.notes},
                   {"seconds", evaluation.seconds}};
  if (evaluation.baseline) json["baseline"] = scores_json(*evaluation.baseline);
  if (const auto& error = evaluation.denoising)
    json["denoising"] = {{"mse", error->all},
                         {"mse_early", error->early},
                         {"pictures", error->pictures},
                         {"early_pictures", error->early_pictures}};
  return json;
}

std::string evaluation_page(const GenerateEvaluation& evaluation) {
  const PictureScores& judged = evaluation.judged;
  report::html::Report page(fmt::format("{} drawn as asked", percent(judged.consistency)),
                            fmt::format("{}; against {}", evaluation.pictures, against(evaluation)));
  page.key_figures({{report::three_digits(judged.frechet), "Frechet distance"},
                    {fmt::format("{:.3f}", judged.manifolds.precision), "precision"},
                    {fmt::format("{:.3f}", judged.manifolds.recall), "recall"},
                    {percent(judged.consistency), "class consistency"}});
  page.section("Pictures, class by class");
  std::vector<report::html::Picture> pictures;
  for (std::size_t c = 0; c < evaluation.classes.size(); ++c) {
    const io::Image& grid = evaluation.examples[c];
    pictures.push_back({io::encode_png(grid.rgb, grid.width, grid.height), evaluation.classes[c],
                        fmt::format("{} taken for it", percent(judged.consistency_by_class[c]))});
  }
  page.pictures(pictures, "", "The first pictures of each class, and the share of all that the classifier recognises.");
  page.section("Beside real pictures");
  page.table(score_header(), score_rows(evaluation));
  page.paragraph(
      "Precision: share of these pictures that lie among the real ones. Recall: share of the real ones that lie among "
      "these. Class consistency: share that the classifier takes for the class they should show. Real pictures of "
      "another split show what is reachable.");
  if (evaluation.classes.size() <= kMostClasses) page.table(class_header(evaluation), class_rows(evaluation));
  if (evaluation.denoising) page.paragraph(denoising_line(*evaluation.denoising) + " (t below 3/10 of the schedule).");
  for (const std::string& note : evaluation.notes) page.note(note);
  page.note("All numbers are in the feature space of this classifier; they do not compare with Inception's.");
  return page.page();
}

}  // namespace mhla::tasks
