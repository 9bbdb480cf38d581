// Files in, numbers out.
#include "cli/generate/job.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <numeric>

#include "cli/commands.hpp"
#include "cli/support/device.hpp"
#include "io/file.hpp"
#include "io/output_file.hpp"
#include "io/printable.hpp"
#include "tasks/pretrained.hpp"

namespace mhla::cli {
namespace {

constexpr std::size_t kMostPromptBytes = std::size_t{1} << 28;

at::ScalarType scalar_type(const std::string& dtype, at::Device device) {
  if (dtype == "auto") return device.is_cuda() ? at::kBFloat16 : at::kFloat;
  return dtype == "bf16" ? at::kBFloat16 : at::kFloat;
}

std::string read_text(const std::string& file) {
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  const std::vector<std::byte> bytes = io::read_file(file, kMostPromptBytes);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The mean.
double milliseconds(std::span<const double> steps) {
  return 1e3 * std::accumulate(steps.begin(), steps.end(), 0.0) /
         static_cast<double>(std::max<std::size_t>(1, steps.size()));
}

}  // namespace

tasks::LanguageModel open_model(const GenerateOptions& options) {
  const at::Device device = choose_device(options.device);
  tasks::LanguageModel opened = tasks::open_language_model(tasks::pretrained_path(options.model, "language"),
                                                           options.tokenizer, device, options.beyond);
  opened.model->to(scalar_type(options.dtype, device));
  return opened;
}

std::vector<std::string> prompts_of(const GenerateOptions& options) {
  if (!options.prompts.empty()) return options.prompts;
  return {options.prompt_file.empty() ? "" : read_text(options.prompt_file)};
}

std::vector<text::Token> tokens_of_prompt(const tasks::LanguageModel& model, std::string_view text, bool begins) {
  if (!io::is_utf8(text)) throw UsageError("the prompt is not UTF-8");
  return begins ? tasks::prompt_tokens(*model.tokenizer, text) : model.tokenizer->encode(text);
}

tasks::Conversation conversation_of(const GenerateOptions& options, const tasks::LanguageModel& model) {
  if (options.state.empty() || !std::filesystem::exists(options.state)) return tasks::Conversation(model);
  return {model, io::read_file(options.state), options.state};
}

std::string times_line(const tasks::GenerationTimes& times) {
  std::string line = fmt::format("prompt: {} token{}", grouped(static_cast<double>(times.prompt_tokens)),
                                 times.prompt_tokens == 1 ? "" : "s");
  if (times.prompt_seconds > 0.0)
    line += fmt::format(", {} tokens/s", three_digits(static_cast<double>(times.prompt_tokens) / times.prompt_seconds));
  if (times.step_seconds.empty()) return line;
  const double each = milliseconds(times.step_seconds) * static_cast<double>(times.step_seconds.size()) /
                      static_cast<double>(times.answer_tokens);
  return line + fmt::format("; answer: {} token{}, {} ms each", grouped(static_cast<double>(times.answer_tokens)),
                            times.answer_tokens == 1 ? "" : "s", three_digits(each));
}

io::Json times_json(const tasks::GenerationTimes& times) {
  const std::span<const double> steps = times.step_seconds;
  io::Json pieces = io::Json::array();
  constexpr std::size_t kEvery = tasks::GenerationTimes::kEvery;
  for (std::size_t first = 0; first < steps.size(); first += kEvery) {
    const auto piece = steps.subspan(first, std::min(kEvery, steps.size() - first));
    pieces.push_back({{"first", first},
                      {"steps", piece.size()},
                      {"ms_per_step", milliseconds(piece)},
                      {"state_bytes", times.state_bytes[first / kEvery]}});
  }
  return {{"prompt_tokens", times.prompt_tokens}, {"prompt_seconds", times.prompt_seconds},
          {"answer_tokens", times.answer_tokens}, {"steps", steps.size()},
          {"ms_per_step", milliseconds(steps)},   {"by_step", pieces}};
}

io::Json answer_json(const tasks::Answer& answer) {
  return {{"text", answer.text}, {"tokens", answer.tokens}, {"end", std::string(tasks::name(answer.end))}};
}

void say(const Output& output, const std::string& text) {
  if (text.empty()) return;
  if (&output.text() == &std::cout && ::isatty(STDOUT_FILENO) != 1)
    io::write_standard_output(text);
  else
    output.text() << text << std::flush;
}

}  // namespace mhla::cli
