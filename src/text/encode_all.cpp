// Large texts are cut where the tokenizer allows it.
#include "text/encode_all.hpp"

#include <exception>
#include <mutex>

#include "mhla/parallel.hpp"

namespace mhla::text {
namespace {

constexpr std::size_t kPart = std::size_t{1} << 20;  // bytes

struct Part {
  std::size_t text;
  std::string_view bytes;
  std::vector<Token> tokens{};
};

}  // namespace

std::vector<std::vector<Token>> encode_all(const Tokenizer& tokenizer, std::span<const std::string_view> texts) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < texts.size(); ++i)
    for (const std::string_view part : tokenizer.parts(texts[i], kPart)) parts.push_back({i, part});
  std::mutex mutex;
  std::exception_ptr failure;
  default_parallel().for_each(static_cast<std::int64_t>(parts.size()), [&](std::int64_t i) {
    try {
      parts[i].tokens = tokenizer.encode(parts[i].bytes);
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
  std::vector<std::vector<Token>> result(texts.size());
  for (Part& part : parts) {
    std::vector<Token>& tokens = result[part.text];
    if (tokens.empty())
      tokens = std::move(part.tokens);
    else
      tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
  }
  return result;
}

}  // namespace mhla::text
