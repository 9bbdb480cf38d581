// Tokens, and the state of those that were read.
#include "tasks/language/conversation.hpp"

#include <fmt/format.h>

#include <chrono>

#include "io/crc32c.hpp"
#include "io/safetensors.hpp"
#include "mhla/types.hpp"
#include "models/base/weights.hpp"
#include "models/lm/lm_state_bytes.hpp"
#include "tasks/language/answering.hpp"

namespace mhla::tasks {
namespace {

constexpr const char* kConversation = "mhla.conversation";  // metadata
constexpr std::int64_t kFormat = 1;

std::string checksum(std::span<const std::byte> bytes) { return fmt::format("{:08x}", io::crc32c(bytes)); }

io::SafeTensor bytes_tensor(std::span<const std::byte> bytes) {
  return {.dtype = "U8", .shape = {static_cast<std::int64_t>(bytes.size())}, .data = bytes};
}

// The two parts of a saved conversation, checked but for the state, which checks itself.
struct Saved {
  Saved(std::span<const std::byte> bytes, const std::string& source)
      : file(io::SafeTensors::parse({bytes.begin(), bytes.end()}, source)) {
    const io::Json facts = models::stored_json(file, kConversation);
    const auto refuse = [&](const std::string& reason) { throw Error(fmt::format("{}: {}", source, reason)); };
    if (!facts.is_object() || facts.value("format", io::Json()) != kFormat || !facts.contains("tokens") ||
        !facts.contains("tokenizer"))
      refuse(fmt::format("no saved conversation of format {}: metadata \"{}\" is missing or another", kFormat,
                         kConversation));
    const io::SafeTensor& stored = file.at("tokens");
    if (stored.dtype != "I32" || stored.shape.size() != 1) refuse("tensor \"tokens\" must be I32 with one axis");
    if (facts["tokens"] != checksum(stored.data)) refuse("the checksum of its tokens is wrong; it is damaged");
    if (!facts["tokenizer"].is_string()) refuse("\"tokenizer\" must be a text");
    tokenizer = facts["tokenizer"].get<std::string>();
    tokens.resize(stored.data.size() / sizeof(text::Token));
    std::ranges::copy(stored.data, std::as_writable_bytes(std::span(tokens)).begin());
    state = file.at("state").data;
  }

  io::SafeTensors file;
  std::string tokenizer;
  std::vector<text::Token> tokens;
  std::span<const std::byte> state;
};

}  // namespace

Conversation::Conversation(const LanguageModel& model) : model_(&model), state_(model.model->new_state(1)) {}

Conversation::Conversation(const LanguageModel& model, std::span<const std::byte> bytes, const std::string& source)
    : Conversation(model) {
  Saved saved(bytes, source);
  const auto refuse = [&](const std::string& reason) { throw Error(fmt::format("{}: {}", source, reason)); };
  if (saved.tokenizer != model.tokenizer->fingerprint())
    refuse(fmt::format("it is of the tokenizer {}; this one is {}", saved.tokenizer, model.tokenizer->fingerprint()));
  try {
    state_ = models::restore_state(*model.model, saved.state);
  } catch (const Error& error) {
    refuse(error.what());
  }
  tokens_ = std::move(saved.tokens);
  for (const text::Token token : tokens_)
    if (token < 0 || token >= model.tokenizer->size())
      refuse(fmt::format("it has the token {}; tokens may be 0 to {}", token, model.tokenizer->size() - 1));
  if (state_.batch() != 1 || state_.most_seen() > std::ssize(tokens_))
    refuse(fmt::format("its state is of {} rows of {} tokens, but it has {} tokens", state_.batch(), state_.most_seen(),
                       tokens_.size()));
}

std::vector<std::byte> Conversation::save() const {
  const std::vector<std::byte> state = models::save_state(*model_->model, state_);
  const auto tokens = std::as_bytes(std::span(tokens_));
  const io::Json facts = {
      {"format", kFormat}, {"tokens", checksum(tokens)}, {"tokenizer", model_->tokenizer->fingerprint()}};
  return io::encode_safetensors(
      {{"state", bytes_tensor(state)}, {"tokens", {.dtype = "I32", .shape = {std::ssize(tokens_)}, .data = tokens}}},
      {{kConversation, facts.dump()}});
}

Answer Conversation::answer(const GenerationRequest& request, const GenerationWatch& watch, GenerationTimes* times) {
  check(*model_, request, std::ssize(tokens_));
  const auto start = std::chrono::steady_clock::now();
  tokens_.insert(tokens_.end(), request.prompt.begin(), request.prompt.end());
  const auto unread = std::span(tokens_).subspan(static_cast<std::size_t>(state_.most_seen()));
  if (unread.empty()) throw Error("prompt is empty, but the last answer has come to its end: a prompt goes on from it");
  const at::Tensor logits = read_tokens(*model_->model, state_, unread, watch);
  if (times != nullptr)
    times->add_prompt(unread.size(), std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (!logits.defined()) return {.tokens = {}, .text = "", .end = AnswerEnd::interrupted};
  SequenceTokens before(model_->tokenizer->size());
  before.add(tokens_);
  Answering answering(*model_, request, std::move(before));
  answer_all(*model_, state_, logits, {&answering, 1}, watch, times);
  const Answer& answer = answering.answer();
  tokens_.insert(tokens_.end(), answer.tokens.begin(), answer.tokens.end());
  return answer;
}

}  // namespace mhla::tasks
