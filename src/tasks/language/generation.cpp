// Prompts are read one by one, each once, and then go on together.
#include "tasks/language/generation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <map>

#include "io/printable.hpp"
#include "mhla/types.hpp"
#include "tasks/language/answering.hpp"

namespace mhla::tasks {
namespace {

constexpr std::size_t kPiece = 1024;  // tokens of a prompt that are read at once
constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;

constexpr std::array<std::string_view, 4> kAnswerEnds = {"length", "stop", "end_token", "interrupted"};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

at::Tensor as_row(std::span<const text::Token> tokens) {
  return torch::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end()), at::kLong).unsqueeze(0);
}

}  // namespace

std::string_view name(AnswerEnd value) { return kAnswerEnds.at(static_cast<std::size_t>(value)); }

text::Token begin_token(const text::Tokenizer& tokenizer) {
  const text::SpecialTokens& special = tokenizer.special();
  if (special.begin) return *special.begin;
  if (special.end) return *special.end;
  throw Error("prompt is empty, and the tokenizer has no token that begins a text");
}

std::vector<text::Token> prompt_tokens(const text::Tokenizer& tokenizer, std::string_view text) {
  if (!io::is_utf8(text)) throw Error("prompt is not UTF-8");
  std::vector<text::Token> tokens;
  if (const text::SpecialTokens& special = tokenizer.special(); special.begin || special.end)
    tokens.push_back(begin_token(tokenizer));
  const std::vector<text::Token> more = tokenizer.encode(text);
  tokens.insert(tokens.end(), more.begin(), more.end());
  if (tokens.empty()) begin_token(tokenizer);  // the Error
  return tokens;
}

std::int64_t longest_sequence(const models::Lm& model) {
  const models::LmOptions& options = model.options;
  const bool limited = options.beyond == "error" && std::ranges::count(options.attention, "mhla") > 0;
  return limited ? options.blocks * options.block_size : std::numeric_limits<std::int64_t>::max();
}

void check(const LanguageModel& model, const GenerationRequest& request, std::int64_t seen) {
  check(request.sampling);
  const std::int64_t words = model.tokenizer->size();
  if (request.prompt.empty() && seen == 0) throw Error("prompt is empty; it must have at least one token");
  for (const text::Token token : request.prompt)
    if (token < 0 || token >= words)
      throw Error(fmt::format("prompt has the token {}; tokens may be 0 to {}", token, words - 1));
  if (request.tokens < 1 || request.tokens > kMostTokens)
    throw Error(fmt::format("tokens is {}; it must be 1 to {}", request.tokens, kMostTokens));
  const AnswerText stop_strings(*model.tokenizer, request.stop);
  const std::int64_t before = seen + std::ssize(request.prompt), longest = longest_sequence(*model.model);
  if (before > longest - request.tokens + 1)  // the last token need not be read
    throw Error(fmt::format(
        "prompt and answer have {} + {} tokens; this model reads {} at most, which it was trained for; with beyond "
        "clamp, running-mean or interpolate it reads more",
        before, request.tokens, longest));
}

at::Tensor read_tokens(models::Lm& model, models::LmState& state, std::span<const text::Token> tokens,
                       const GenerationWatch& watch) {
  const auto goes_on = [&](std::size_t count) { return !watch.read || watch.read(static_cast<std::int64_t>(count)); };
  for (; tokens.size() > kPiece; tokens = tokens.subspan(kPiece)) {
    model.extend(state, as_row(tokens.first(kPiece)));
    if (!goes_on(kPiece)) return {};
  }
  at::Tensor logits = model.prefill(state, as_row(tokens));
  return goes_on(tokens.size()) ? logits : at::Tensor();
}

namespace {

// Every prompt in a state of its own, once.
struct ReadPrompts {
  std::vector<models::LmState> states;
  std::vector<at::Tensor> logits;
  std::vector<std::int64_t> place_of_request;

  // False where the watch ended it.
  bool read(models::Lm& model, std::span<const GenerationRequest> requests, const GenerationWatch& watch,
            GenerationTimes* times) {
    std::map<std::vector<text::Token>, std::int64_t> places;
    for (const GenerationRequest& request : requests) {
      const auto [found, fresh] = places.try_emplace(request.prompt, std::ssize(states));
      place_of_request.push_back(found->second);
      if (!fresh) continue;
      const auto start = Clock::now();
      states.push_back(model.new_state(1));
      logits.push_back(read_tokens(model, states.back(), request.prompt, watch));
      if (!logits.back().defined()) return false;
      if (times != nullptr) times->add_prompt(request.prompt.size(), seconds_since(start));
    }
    return true;
  }
};

}  // namespace

std::vector<Answer> generate(const LanguageModel& model, std::span<const GenerationRequest> requests,
                             const GenerationWatch& watch, GenerationTimes* times) {
  for (const GenerationRequest& request : requests) check(model, request);
  if (requests.empty()) return {};
  ReadPrompts prompts;
  if (!prompts.read(*model.model, requests, watch, times))
    return std::vector<Answer>(requests.size(), {.tokens = {}, .text = "", .end = AnswerEnd::interrupted});
  std::vector<Answering> rows;
  rows.reserve(requests.size());
  for (const GenerationRequest& request : requests) {
    SequenceTokens before(model.tokenizer->size());
    before.add(request.prompt);
    rows.emplace_back(model, request, std::move(before));
  }
  models::LmState state = models::LmState::joined(prompts.states).rows(prompts.place_of_request);
  prompts.states.clear();
  const at::Tensor logits = at::cat(prompts.logits);
  answer_all(model, state, logits.index_select(0, torch::tensor(prompts.place_of_request).to(logits.device())), rows,
             watch, times);
  std::vector<Answer> answers;
  answers.reserve(rows.size());
  for (Answering& row : rows) answers.push_back(std::move(row.answer()));
  return answers;
}

}  // namespace mhla::tasks
