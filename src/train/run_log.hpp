// What a run leaves to look at: a line per interval, metrics.jsonl, TensorBoard events, summary.csv and report.html.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "io/json.hpp"
#include "io/output_file.hpp"
#include "io/tfevents.hpp"
#include "train/task.hpp"

namespace mhla::train {

struct StepReport {
  std::int64_t step = 0, steps = 0;  // done, of the whole run
  double epoch = 0.0;
  double loss = 0.0;       // mean since the last report
  double grad_norm = 0.0;  // of the last step
  double learning_rate = 0.0;
  double rate = 0.0;  // samples per second
  std::optional<double> of_peak;
  double seconds_left = 0.0;
  std::int64_t skipped = 0;  // steps of the run left out because gradients were not finite
};

using Facts = std::vector<std::pair<std::string, std::string>>;  // (what, value)

class RunLog {
 public:
  // Continues the files in `folder` after `first_step` steps; what they hold of later steps is dropped.
  RunLog(std::filesystem::path folder, std::int64_t first_step, std::string unit, Facts about, std::ostream& text);

  void step(const StepReport& report);
  void evaluation(std::int64_t step, double epoch, double seconds, const Evaluation& evaluation, bool best);

 private:
  void say(const std::string& line) { text_ << line << std::endl; }
  void append(const io::Json& row);
  void write_summary() const;

  std::filesystem::path folder_;
  std::string unit_;
  Facts about_;
  std::ostream& text_;
  std::vector<io::Json> rows_;
  io::OutputFile lines_;
  io::EventFile events_;
};

// The rows of a metrics.jsonl up to `last_step`. Damaged lines are left out and reported; a half-written last line,
// which a killed run leaves, is left out.
std::vector<io::Json> read_metrics(
    const std::filesystem::path& file, std::int64_t last_step,
    const std::function<void(const std::string&)>& report = [](const std::string&) {});

}  // namespace mhla::train
