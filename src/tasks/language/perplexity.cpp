// Windows over documents, and means over what they score.
#include "tasks/language/perplexity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <numbers>
#include <span>

#include "mhla/types.hpp"

namespace mhla::tasks {
namespace {

constexpr std::size_t kEnoughDocuments = 20;
constexpr std::int64_t kStretch = 1024;
constexpr std::size_t kBuckets = 63;

struct Window {
  std::size_t document;
  ScoredTokens tokens;
};

std::vector<Window> windows_of(const std::vector<TextDocument>& documents, const PerplexityOptions& options) {
  const std::int64_t context = options.context, stride = options.stride == 0 ? context : options.stride;
  std::vector<Window> windows;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    const std::span<const std::int64_t> tokens = documents[i].tokens;
    const std::int64_t last = std::ssize(tokens) - 1;
    if (last < 1) throw Error(fmt::format("document {} is empty", i + 1));
    std::int64_t end = context == 0 ? last : std::min(context, last), scored = 0;  // tokens up to these
    for (;; end = std::min(end + stride, last)) {
      const std::int64_t begin = context == 0 ? 0 : std::max<std::int64_t>(0, end - context);
      windows.push_back(
          {i,
           {.tokens = tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin + 1)),
            .from = scored + 1 - begin}});
      scored = end;
      if (end == last) break;
    }
  }
  return windows;
}

class Losses {
 public:
  explicit Losses(const std::vector<TextDocument>& documents)
      : documents_(documents), by_document_(documents.size() >= kEnoughDocuments) {}

  void add(const Window& window, const Likelihood& likelihood) {
    if (window.document != document_) {
      document_ = window.document;
      scored_ = 0;
      ++cluster_;
    }
    std::int64_t position = window.tokens.from;
    for (const double value : likelihood.tokens) {
      if (!by_document_ && scored_ > 0 && scored_ % kStretch == 0) ++cluster_;
      all_.add(cluster_, -value);
      buckets_[static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(position - 1)))].add(cluster_,
                                                                                                       -value);
      ++position;
      ++scored_;
    }
  }

  Perplexity result() const {
    Perplexity result{.loss = all_.result(),
                      .clusters = by_document_ ? "documents" : "stretches of 1,024 tokens",
                      .documents = std::ssize(documents_)};
    for (const TextDocument& document : documents_) {
      result.tokens += std::ssize(document.tokens) - 1;
      result.words += document.words;
      result.bytes += document.bytes;
    }
    for (std::size_t i = 0; i < kBuckets; ++i)
      if (const MeanWithError loss = buckets_[i].result(); loss.values > 0)
        result.positions.push_back({i == 0 ? 1 : (std::int64_t{1} << (i - 1)) + 1, std::int64_t{1} << i, loss});
    return result;
  }

 private:
  const std::vector<TextDocument>& documents_;
  const bool by_document_;
  std::size_t document_ = 0;
  std::int64_t cluster_ = 0, scored_ = 0;
  ClusteredMean all_;
  std::array<ClusteredMean, kBuckets> buckets_;
};

void check(const PerplexityOptions& options) {
  if (options.context < 0) throw Error(fmt::format("context is {}; it must be at least 0", options.context));
  const std::int64_t most = options.context;
  if (options.stride < 0 || options.stride > most)
    throw Error(fmt::format("stride is {}; it may be 0 to the context, {}", options.stride, most));
}

}  // namespace

Perplexity perplexity(models::Lm& model, const std::vector<TextDocument>& documents, const PerplexityOptions& options,
                      const TokensDone& done) {
  check(options);
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Window> windows = windows_of(documents, options);
  Losses losses(documents);
  for (std::size_t begin = 0, end = 0; begin < windows.size(); begin = end) {
    std::vector<ScoredTokens> some;
    for (std::int64_t tokens = 0; end < windows.size() && (some.empty() || tokens < options.tokens_at_once); ++end) {
      some.push_back(windows[end].tokens);
      tokens += std::ssize(some.back().tokens);
    }
    const std::vector<Likelihood> scored = likelihoods(model, some, options.tokens_at_once, done);
    for (std::size_t i = begin; i < end; ++i) losses.add(windows[i], scored[i - begin]);
  }
  Perplexity result = losses.result();
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

double Perplexity::per_token() const { return std::exp(loss.mean); }
double Perplexity::per_word() const {
  return std::exp(loss.mean * static_cast<double>(tokens) / static_cast<double>(words));
}
double Perplexity::bits_per_byte() const {
  return loss.mean * static_cast<double>(tokens) / static_cast<double>(bytes) / std::numbers::ln2;
}
double Perplexity::per_token_error() const { return per_token() * loss.error; }
double Perplexity::per_word_error() const {
  return per_word() * loss.error * static_cast<double>(tokens) / static_cast<double>(words);
}
double Perplexity::bits_per_byte_error() const { return bits_per_byte() * loss.error / loss.mean; }

}  // namespace mhla::tasks
