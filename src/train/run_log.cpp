// Lines, rows and events of a run.
#include "train/run_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "io/csv.hpp"
#include "io/file.hpp"
#include "io/printable.hpp"
#include "mhla/types.hpp"
#include "report/duration.hpp"
#include "train/run_report.hpp"

namespace mhla::train {
namespace {

// JSON has no NaN.
io::Json number_or_null(double value) { return std::isfinite(value) ? io::Json(value) : io::Json(nullptr); }

std::vector<std::pair<std::string, double>> scalars_of(const io::Json& row) {
  std::vector<std::pair<std::string, double>> scalars;
  for (const auto& item : row.items())
    if (item.value().is_number() && item.key() != "step") {
      const bool has_group = item.key().find('/') != std::string::npos;
      scalars.emplace_back(has_group ? item.key() : "train/" + item.key(), item.value().get<double>());
    }
  return scalars;
}

// White space of any length as one space.
std::string in_one_line(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
  return io::printable(line);
}

// What the pages and tables of a run take for granted.
void check_row(const io::Json& row, const std::string& where) {
  const auto check = [&](const char* key, bool good) {
    if (!good) throw Error(fmt::format("{}: \"{}\" is missing or of another type", where, key));
  };
  const auto is_number = [&](const char* key) { return row.contains(key) && row[key].is_number(); };
  check("step", row.is_object() && row.contains("step") && row["step"].is_number_integer());
  check("epoch", is_number("epoch"));
  if (row.contains("loss")) {
    check("loss", is_number("loss") || row["loss"].is_null());
    check("lr", is_number("lr"));
  } else {
    check("seconds", is_number("seconds"));
  }
}

std::vector<io::Json> rows_to_keep(const std::filesystem::path& file, std::int64_t first_step, std::ostream& text) {
  if (first_step == 0) return {};
  return read_metrics(file, first_step, [&](const std::string& line) { text << line << std::endl; });
}

// Only these rows, and open for more.
io::OutputFile continued(const std::filesystem::path& file, const std::vector<io::Json>& rows) {
  std::string kept;
  for (const io::Json& row : rows) kept += row.dump() + "\n";
  io::write_file(file, kept);
  return {file, O_WRONLY | O_APPEND};
}

}  // namespace

std::vector<io::Json> read_metrics(const std::filesystem::path& file, std::int64_t last_step,
                                   const std::function<void(const std::string&)>& report) {
  std::vector<io::Json> rows;
  std::ifstream stream(file);
  std::int64_t number = 0;
  for (std::string line; std::getline(stream, line);) {
    const std::string where = fmt::format("{}: line {}", file.string(), ++number);
    if (stream.eof() && !line.ends_with('}')) break;
    try {
      io::Json row = io::parse_json(line, where);
      check_row(row, where);
      if (row["step"].get<std::int64_t>() <= last_step) rows.push_back(std::move(row));
    } catch (const Error& error) {
      report(fmt::format("damaged line left out: {}", error.what()));
    }
  }
  return rows;
}

RunLog::RunLog(std::filesystem::path folder, std::int64_t first_step, std::string unit, Facts about, std::ostream& text)
    : folder_(std::move(folder)), unit_(std::move(unit)), about_(std::move(about)), text_(text),
      rows_(rows_to_keep(folder_ / "metrics.jsonl", first_step, text)),
      lines_(continued(folder_ / "metrics.jsonl", rows_)), events_(folder_ / "events", first_step) {}

void RunLog::append(const io::Json& row) {
  rows_.push_back(row);
  lines_.write(row.dump() + "\n");
  events_.scalars(row.at("step").get<std::int64_t>(), scalars_of(row));
}

void RunLog::step(const StepReport& report) {
  const std::string total = std::to_string(report.steps);
  std::string line = fmt::format("step {:>{}}/{}  loss {:.4f}  grad {:6.3f}  lr {:.2e}  {:.{}f} {}/s", report.step,
                                 total.size(), total, report.loss, report.grad_norm, report.learning_rate, report.rate,
                                 report.rate < 100.0 ? 1 : 0, unit_);
  if (report.of_peak) line += fmt::format("  {:.1f} % of peak", 100.0 * *report.of_peak);
  if (report.step < report.steps) line += fmt::format("  {} left", report::duration(report.seconds_left));
  if (report.skipped > 0) line += fmt::format("  {} steps left out: gradients not finite", report.skipped);
  say(line);
  io::Json row = {{"step", report.step},
                  {"epoch", report.epoch},
                  {"loss", number_or_null(report.loss)},
                  {"grad_norm", number_or_null(report.grad_norm)},
                  {"lr", report.learning_rate},
                  {unit_ + "_per_second", report.rate}};
  if (report.of_peak) row["of_peak"] = *report.of_peak;
  if (report.skipped > 0) row["skipped"] = report.skipped;
  append(row);
}

void RunLog::evaluation(std::int64_t step, double epoch, double seconds, const Evaluation& evaluation, bool best) {
  io::Json row = {{"step", step}, {"epoch", epoch}, {"seconds", seconds}};
  std::string line = fmt::format("epoch {:.4g}:", epoch);
  for (const auto& [name, value] : evaluation.numbers) {
    row[name] = number_or_null(value);
    line += fmt::format("  {} {:.4f}", name, value);
  }
  if (!evaluation.picture.empty()) {
    row["picture"] = fmt::format("samples/step_{:07}.png", step);
    io::write_file(folder_ / row["picture"].get<std::string>(), evaluation.picture);
  }
  if (!evaluation.text.empty()) row["text"] = evaluation.text;
  say(line + (!evaluation.score ? "  not validated, newest weights kept" : best ? "  (best)" : ""));
  if (!evaluation.text.empty()) say("    " + in_one_line(evaluation.text));
  append(row);
  write_summary();
  io::write_file(folder_ / "report.html", run_page(rows_, about_, folder_));
}

// One row per evaluation with the training loss last reported before it.
void RunLog::write_summary() const {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> cells;
  const io::Json* training = nullptr;
  const auto text = [](const io::Json& value) { return value.is_null() ? std::string() : value.dump(); };
  for (const io::Json& row : rows_) {
    if (row.contains("loss")) {
      training = &row;
      continue;
    }
    header = {"step", "epoch", "seconds", "train/loss", "train/lr"};
    cells.push_back({text(row.at("step")), text(row.at("epoch")), text(row.at("seconds")),
                     training == nullptr ? "" : text(training->at("loss")),
                     training == nullptr ? "" : text(training->at("lr"))});
    for (const auto& item : row.items())
      if (item.key().find('/') != std::string::npos) {
        header.push_back(item.key());
        cells.back().push_back(text(item.value()));
      }
  }
  io::write_file(folder_ / "summary.csv", io::encode_csv(header, cells));
}

}  // namespace mhla::train
