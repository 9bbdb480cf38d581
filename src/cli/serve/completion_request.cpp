// A table of fields; those that this server does not have are refused by name.
#include "cli/serve/completion_request.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <random>
#include <utility>

#include "io/printable.hpp"
#include "mhla/types.hpp"
#include "tasks/language/answer_text.hpp"
#include "tasks/language/generation.hpp"

namespace mhla::cli {
namespace {

constexpr std::size_t kMostStops = 16, kMostShown = 60;

[[noreturn]] void refuse(const std::string& field, const std::string& message, const std::string& code = "") {
  throw ApiError(400, field + " " + message, field, code);
}

std::string shown(const io::Json& value) {
  std::string text = value.dump(-1, ' ', false, io::Json::error_handler_t::replace);
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "..";
  return text;
}

template <typename Value>
void read(const std::string& field, const io::Json& value, Value& target, const char* right) {
  if (!io::read_exactly(value, target)) refuse(field, fmt::format("is {}; it must be {}", shown(value), right));
}

std::int64_t read_count(const std::string& field, const io::Json& value, std::int64_t least, std::int64_t most) {
  std::int64_t count = 0;
  const bool open = most == std::numeric_limits<std::int64_t>::max();
  const std::string right =
      open ? fmt::format("an integer of {} or more", least) : fmt::format("an integer from {} to {}", least, most);
  read(field, value, count, right.c_str());
  if (count < least || count > most) refuse(field, fmt::format("is {}; it must be {}", count, right));
  return count;
}

class Reader {
 public:
  Reader(const tasks::LanguageModel& model, const ServeLimits& limits) : model_(model), limits_(limits) {}

  CompletionRequest read_all(const io::Json& body) {
    if (!body.is_object()) throw ApiError(400, "the body is not a JSON object");
    for (const auto& [name, value] : body.items()) read_field(name, value);
    if (asked_.prompts.empty()) refuse("prompt", "is missing");
    if (!seeded_) asked_.sampling.seed = std::random_device{}();
    check();
    return std::move(asked_);
  }

 private:
  void read_field(const std::string& name, const io::Json& value) {
    const auto fields = members();
    const auto* const field = std::ranges::find(fields, name, [](const auto& one) { return std::string(one.first); });
    if (field == fields.end()) {
      std::string names;
      for (const auto& one : fields) names += (names.empty() ? "" : ", ") + std::string(one.first);
      throw ApiError(400, fmt::format("\"{}\" is not a field of this server; it may be: {}", name, names), name,
                     "unknown_field");
    }
    if (!value.is_null()) field->second(value);  // null is what a field is when it is not there
  }

  using Member = std::pair<const char*, std::function<void(const io::Json&)>>;
  std::array<Member, 17> members() {
    tasks::SamplingOptions& sampling = asked_.sampling;
    const auto number = [](const char* name, double& target) {
      return Member(name, [=, &target](const io::Json& value) { read(name, value, target, "a number"); });
    };
    const auto flag = [](const char* name, bool& target) {
      return Member(name, [=, &target](const io::Json& value) { read(name, value, target, "true or false"); });
    };
    const auto count = [](const char* name, std::int64_t& target, std::int64_t least, std::int64_t most) {
      return Member(name, [=, &target](const io::Json& value) { target = read_count(name, value, least, most); });
    };
    constexpr auto kAny = std::numeric_limits<std::int64_t>::max();
    return {Member("model", [this](const io::Json& value) { read_model(value); }),
            Member("prompt", [this](const io::Json& value) { read_prompt(value); }),
            Member("max_tokens",
                   [this](const io::Json& value) {
                     asked_.tokens = read_count("max_tokens", value, 1, limits_.tokens);
                     tokens_given_ = true;
                   }),
            number("temperature", sampling.temperature),
            number("top_p", sampling.top_p),
            count("top_k", sampling.top_k, 0, kAny),
            number("min_p", sampling.min_p),
            number("repetition_penalty", sampling.repetition_penalty),
            Member("stop", [this](const io::Json& value) { read_stop(value); }),
            Member("seed",
                   [this](const io::Json& value) {
                     asked_.sampling.seed = static_cast<std::uint64_t>(read_count("seed", value, 0, kAny));
                     seeded_ = true;
                   }),
            count("n", asked_.n, 1, limits_.answers),
            flag("ignore_eos", asked_.past_end),
            flag("echo", asked_.echo),
            flag("stream", asked_.stream),
            Member("stream_options", [this](const io::Json& value) { read_stream_options(value); }),
            Member("logprobs",
                   [](const io::Json&) { refuse("logprobs", "is not supported by this server; it may be null"); }),
            Member("user", [](const io::Json& value) {
              std::string user;
              read("user", value, user, "a string");
            })};
  }

  void read_model(const io::Json& value) {
    std::string name;
    read("model", value, name, "a string");
    if (name != model_.name)
      throw ApiError(404, fmt::format("model is {}; this server has \"{}\"", shown(value), model_.name), "model",
                     "model_not_found");
  }

  void read_prompt(const io::Json& value) {
    constexpr const char* kRight = "a string, a list of strings, a list of token ids or a list of such lists";
    if (value.is_string()) return add_text(value);
    if (!value.is_array() || value.empty()) refuse("prompt", fmt::format("is {}; it must be {}", shown(value), kRight));
    if (value.front().is_number()) return add_ids(value);
    for (const io::Json& one : value)
      if (one.is_string())
        add_text(one);
      else if (one.is_array())
        add_ids(one);
      else
        refuse("prompt", fmt::format("holds {}; it must be {}", shown(one), kRight));
  }

  void add_text(const io::Json& value) {
    CompletionRequest::Prompt prompt{.text = value.get<std::string>(), .tokens = {}};
    if (prompt.text.size() > text::Tokenizer::kMostBytes) refuse("prompt", "is too long", "context_length_exceeded");
    try {
      prompt.tokens = tasks::prompt_tokens(*model_.tokenizer, prompt.text);
    } catch (const Error& error) {
      throw ApiError(400, error.what(), "prompt");
    }
    asked_.prompts.push_back(std::move(prompt));
  }

  void add_ids(const io::Json& value) {
    CompletionRequest::Prompt prompt;
    if (value.empty()) refuse("prompt", "is an empty list; it must have at least one token");
    for (const io::Json& one : value) {
      std::int64_t id = 0;
      read("prompt", one, id, "made of token ids, which are integers");
      if (id < 0 || id >= model_.tokenizer->size())
        refuse("prompt", fmt::format("has the token {}; tokens may be 0 to {}", id, model_.tokenizer->size() - 1));
      prompt.tokens.push_back(static_cast<text::Token>(id));
    }
    prompt.text = model_.tokenizer->decode(prompt.tokens);
    asked_.prompts.push_back(std::move(prompt));
  }

  void read_stop(const io::Json& value) {
    const auto right = fmt::format("a string, or a list of at most {} strings", kMostStops);
    if (std::string one; io::read_exactly(value, one))
      asked_.stop = {one};
    else
      read("stop", value, asked_.stop, right.c_str());
    if (asked_.stop.size() > kMostStops)
      refuse("stop", fmt::format("has {} strings; it must be {}", asked_.stop.size(), right));
    if (std::ranges::any_of(asked_.stop, &std::string::empty)) refuse("stop", "has an empty string");
  }

  void read_stream_options(const io::Json& value) {
    if (!value.is_object()) refuse("stream_options", fmt::format("is {}; it must be an object", shown(value)));
    for (const auto& [name, member] : value.items()) {
      if (name != "include_usage")
        refuse("stream_options", fmt::format("has \"{}\"; it may have include_usage", name), "unknown_field");
      read("stream_options.include_usage", member, asked_.include_usage, "true or false");
    }
  }

  void check() {
    try {
      tasks::check(asked_.sampling);
    } catch (const Error& error) {
      const std::string message = error.what();
      throw ApiError(400, message, message.substr(0, message.find(' ')));
    }
    if (std::ssize(asked_.prompts) > limits_.answers / asked_.n)
      throw ApiError(400,
                     fmt::format("prompt has {} entries and n is {}; it may be {} answers together",
                                 asked_.prompts.size(), asked_.n, limits_.answers),
                     "n");
    const std::int64_t longest = tasks::longest_sequence(*model_.model);
    for (const auto& prompt : asked_.prompts) {
      const std::int64_t count = std::ssize(prompt.tokens), room = longest - count + (count <= longest ? 1 : 0);
      if (!tokens_given_ && room > 0) asked_.tokens = std::min(asked_.tokens, room);
      if (room < asked_.tokens)
        refuse("prompt",
               fmt::format("has {} tokens and max_tokens is {}; this model reads at most {}", count, asked_.tokens,
                           longest),
               "context_length_exceeded");
    }
  }

  const tasks::LanguageModel& model_;
  const ServeLimits& limits_;
  CompletionRequest asked_;
  bool seeded_ = false, tokens_given_ = false;
};

}  // namespace

ApiError::ApiError(int status, const std::string& message, std::string field, std::string code)
    : status_(status), message_(io::printable(message)), field_(std::move(field)), code_(std::move(code)) {}

io::Json ApiError::json() const {
  const auto or_null = [](const std::string& text) { return text.empty() ? io::Json() : io::Json(text); };
  const char* type = "invalid_request_error";
  if (status_ == 429) type = "rate_limit_error";
  if (status_ >= 500) type = "server_error";
  return {{"error", {{"message", message_}, {"type", type}, {"param", or_null(field_)}, {"code", or_null(code_)}}}};
}

std::int64_t CompletionRequest::prompt_tokens() const {
  std::int64_t count = 0;
  for (const Prompt& prompt : prompts) count += std::ssize(prompt.tokens);
  return count;
}

CompletionRequest read_completion(std::string_view body, const tasks::LanguageModel& model, const ServeLimits& limits) {
  io::Json json;
  try {
    json = io::parse_json(body, "the body");
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "", "invalid_json");
  }
  return Reader(model, limits).read_all(json);
}

}  // namespace mhla::cli
