// Answers as one JSON object, or part by part as server-sent events.
#include "cli/serve/completion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <utility>

#include "mhla/types.hpp"

namespace mhla::cli {
namespace {

using namespace std::chrono_literals;

std::string new_id() {
  std::random_device device;
  return fmt::format("cmpl-{:08x}{:08x}", device(), device());
}

}  // namespace

std::string to_text(const io::Json& json) { return json.dump(-1, ' ', false, io::Json::error_handler_t::replace); }

Completion::Completion(CompletionRequest asked, const tasks::LanguageModel& model, tasks::Scheduler& scheduler)
    : asked_(std::move(asked)), id_(new_id()), model_(model.name), created_(std::time(nullptr)),
      parts_(std::make_shared<tasks::AnswerParts>(*model.tokenizer, asked_.answers(), asked_.stop)),
      answers_(asked_.answers()) {
  std::vector<tasks::AnswerRequest> requests;
  for (const auto& prompt : asked_.prompts)
    for (std::int64_t number = 0; number < asked_.n; ++number)
      requests.push_back({.prompt = prompt.tokens,
                          .tokens = asked_.tokens,
                          .sampling = asked_.sampling,
                          .sequence = static_cast<std::uint64_t>(number),
                          .past_end = asked_.past_end,
                          .listener = tasks::AnswerParts::listener(parts_, requests.size())});
  const tasks::Admission admission = scheduler.submit(std::move(requests));
  if (admission == tasks::Admission::full)
    throw ApiError(429, "too many requests are waiting; try again later", "", "too_many_requests");
  if (admission == tasks::Admission::closed) throw ApiError(503, "the server is shutting down", "", "shutting_down");
  while (first_.empty()) first_ = parts_->wait(1s);
  const auto failed = std::ranges::find(first_, tasks::AnswerFinish::error, &tasks::AnswerPart::finish);
  if (failed == first_.end()) return;
  parts_->cancel();
  throw ApiError(500, failed->error, "", "generation_failed");
}

io::Json Completion::head() const {
  return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", model_}};
}

io::Json Completion::usage() const {
  const std::int64_t prompt = prompt_tokens(), answer = tokens();
  return {{"prompt_tokens", prompt}, {"completion_tokens", answer}, {"total_tokens", prompt + answer}};
}

std::string Completion::next(std::chrono::milliseconds at_most) {
  std::vector<tasks::AnswerPart> parts = std::exchange(first_, {});
  if (parts.empty()) parts = parts_->wait(at_most);
  std::string text;
  if (asked_.stream)
    text = events(parts);
  else
    collect(parts);
  if (!parts_->finished()) return text;
  sent_ = true;
  if (!asked_.stream) return whole();
  if (asked_.include_usage) {
    io::Json last = head();
    last["choices"] = io::Json::array();
    last["usage"] = usage();
    text += "data: " + to_text(last) + "\n\n";
  }
  return text + "data: [DONE]\n\n";
}

std::string Completion::event(std::size_t answer, const std::string& text, const io::Json& finish) const {
  io::Json json = head();
  const io::Json choice = {{"text", text}, {"index", answer}, {"logprobs", nullptr}, {"finish_reason", finish}};
  json["choices"] = io::Json::array({choice});
  return "data: " + to_text(json) + "\n\n";
}

std::string Completion::events(const std::vector<tasks::AnswerPart>& parts) {
  std::string text;
  if (asked_.echo && !begun_)
    for (std::size_t answer = 0; answer < answers_.size(); ++answer)
      text += event(answer, asked_.prompts[answer / static_cast<std::size_t>(asked_.n)].text, nullptr);
  begun_ = true;
  for (const tasks::AnswerPart& part : parts) {
    if (part.finish == tasks::AnswerFinish::error)
      text += "data: " + to_text(ApiError(500, part.error, "", "generation_failed").json()) + "\n\n";
    text += event(part.answer, part.text, part.finish ? io::Json(name(*part.finish)) : io::Json());
  }
  return text;
}

void Completion::collect(const std::vector<tasks::AnswerPart>& parts) {
  for (const tasks::AnswerPart& part : parts) {
    Answer& answer = answers_[part.answer];
    answer.text += part.text;
    if (part.finish) answer.finish = name(*part.finish);
  }
}

std::string Completion::whole() const {
  io::Json json = head();
  json["choices"] = io::Json::array();
  for (std::size_t index = 0; index < answers_.size(); ++index) {
    const std::string& prompt = asked_.prompts[index / static_cast<std::size_t>(asked_.n)].text;
    json["choices"].push_back({{"text", (asked_.echo ? prompt : "") + answers_[index].text},
                               {"index", index},
                               {"logprobs", nullptr},
                               {"finish_reason", answers_[index].finish}});
  }
  json["usage"] = usage();
  return to_text(json);
}

}  // namespace mhla::cli
