// A split of tokens is a folder with index.json; the text of its documents is what their tokens stand for.
#include "tasks/language/text_documents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>

#include "data/tokens/dataset.hpp"
#include "data/tokens/documents.hpp"
#include "mhla/types.hpp"
#include "tasks/language/generation.hpp"
#include "text/encode_all.hpp"

namespace mhla::tasks {
namespace {

namespace fs = std::filesystem;

std::int64_t words_of(std::string_view text) {
  std::int64_t words = 0;
  bool inside = false;
  for (const char letter : text) {
    const bool space = std::isspace(static_cast<unsigned char>(letter)) != 0;
    words += !space && !inside ? 1 : 0;
    inside = !space;
  }
  return words;
}

class Reader {
 public:
  Reader(const text::Tokenizer& tokenizer, std::int64_t most) : tokenizer_(tokenizer), most_(most) {}

  void read_text(const std::string& path) {
    std::vector<std::string> texts;
    for (const fs::path& file : data::files_of_text({path})) {
      if (enough(texts.size())) break;
      data::for_each_document(file, [&](std::string_view document, double) {
        if (!enough(texts.size())) texts.emplace_back(document);
      });
    }
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    const auto encoded = text::encode_all(tokenizer_, views);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      TextDocument& document = documents_.emplace_back();
      document.tokens.push_back(begin_token(tokenizer_));
      document.tokens.insert(document.tokens.end(), encoded[i].begin(), encoded[i].end());
      document.bytes = std::ssize(texts[i]), document.words = words_of(texts[i]);
    }
  }

  void read_tokens(const fs::path& folder) {
    const data::TokenDataset dataset(folder);
    const data::TokenIndex& index = dataset.index();
    if (index.tokenizer != tokenizer_.fingerprint())
      throw Error(fmt::format("{}: the tokens are of the tokenizer {}, but the model's is {}", folder.string(),
                              index.tokenizer, tokenizer_.fingerprint()));
    std::vector<std::int64_t> starts = dataset.document_starts();
    starts.push_back(dataset.size());
    for (std::size_t i = 0; i + 1 < starts.size() && !enough(0); ++i) {
      TextDocument document;
      document.tokens.resize(static_cast<std::size_t>(starts[i + 1] - starts[i]));
      if (document.tokens.size() < 2) continue;
      dataset.read(starts[i], document.tokens);
      const std::vector<text::Token> tokens(document.tokens.begin() + 1, document.tokens.end());
      const std::string text = tokenizer_.decode(tokens);
      document.bytes = std::ssize(text), document.words = words_of(text);
      documents_.push_back(std::move(document));
    }
  }

  std::vector<TextDocument> documents() { return std::move(documents_); }

 private:
  bool enough(std::size_t more) const {
    return most_ > 0 && std::ssize(documents_) + static_cast<std::int64_t>(more) >= most_;
  }

  const text::Tokenizer& tokenizer_;
  const std::int64_t most_;
  std::vector<TextDocument> documents_;
};

}  // namespace

std::vector<TextDocument> text_documents(const text::Tokenizer& tokenizer, const std::vector<std::string>& data,
                                         std::int64_t most) {
  Reader reader(tokenizer, most);
  for (const std::string& path : data)
    if (fs::exists(fs::path(path) / "index.json"))
      reader.read_tokens(path);
    else
      reader.read_text(path);
  std::vector<TextDocument> documents = reader.documents();
  if (documents.empty()) throw Error(fmt::format("{}: no text", data.empty() ? "no data" : data.front()));
  return documents;
}

}  // namespace mhla::tasks
