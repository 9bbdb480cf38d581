// Perplexity by the definition, in whole documents and in windows.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "data/tokens/tokenize.hpp"
#include "support/expect_error.hpp"
#include "support/small_language_model.hpp"
#include "support/temporary_folder.hpp"
#include "tasks/language/perplexity.hpp"

namespace mhla::tasks {
namespace {

using mhla::testing::small_language_model;
using mhla::testing::small_language_options;

constexpr const char* kTexts =
    "the theme of the thesis is them\n<|endoftext|>\nthen there is the other theme, and this one is longer than what "
    "was trained for: the author went on and on and on\n<|endoftext|>\nok\n";

std::vector<TextDocument> documents_of(const text::Tokenizer& tokenizer, const std::string& text) {
  const mhla::testing::TemporaryFolder folder;
  io::write_file(folder / "a.txt", text);
  return text_documents(tokenizer, {(folder / "a.txt").string()});
}

// Log-likelihoods of the tokens of a document from its logits.
class Directly {
 public:
  Directly(models::Lm& model, const TextDocument& document) : model_(model), ids_(torch::tensor(document.tokens)) {}

  // Of token i given the `before` tokens before it.
  double after(std::int64_t i, std::int64_t before) {
    at::Tensor& scores = from_[i - before];
    const torch::NoGradGuard no_gradient;
    if (!scores.defined())
      scores = model_.forward(ids_.slice(0, i - before).unsqueeze(0))[0].to(at::kDouble).log_softmax(1);
    return scores[before - 1][ids_[i].item<std::int64_t>()].item<double>();
  }

 private:
  models::Lm& model_;
  at::Tensor ids_;
  std::map<std::int64_t, at::Tensor> from_;  // by the first token that is seen
};

TEST(Perplexity, OfWholeDocumentsIsThatOfTheirLogits) {
  const LanguageModel model = small_language_model();
  const auto documents = documents_of(*model.tokenizer, kTexts);
  ASSERT_EQ(documents.size(), 3U);
  double sum = 0.0;
  std::int64_t tokens = 0;
  for (const TextDocument& document : documents) {
    Directly directly(*model.model, document);
    for (std::int64_t i = 1; i < std::ssize(document.tokens); ++i, ++tokens) sum -= directly.after(i, i);
  }
  for (const std::int64_t at_once : {100000, 30}) {
    const Perplexity result = perplexity(*model.model, documents, {.tokens_at_once = at_once});
    const double loss = sum / static_cast<double>(tokens);
    EXPECT_NEAR(result.loss.mean, loss, 1e-5);
    EXPECT_EQ(result.tokens, tokens);
    EXPECT_EQ(result.loss.values, tokens);
    EXPECT_EQ(result.documents, 3);
    EXPECT_EQ(result.words, 7 + 24 + 1);
    EXPECT_EQ(result.bytes, std::ssize(std::string(kTexts)) - 2 * 14);
    EXPECT_NEAR(result.per_token(), std::exp(loss), 1e-3 * std::exp(loss));
    EXPECT_NEAR(std::log(result.per_word()), sum / 32.0, 1e-4);
    EXPECT_NEAR(result.bits_per_byte(), sum / std::log(2.0) / static_cast<double>(result.bytes), 1e-5);
  }
}

TEST(Perplexity, LossByPositionAddsUpToTheLoss) {
  const LanguageModel model = small_language_model();
  const auto documents = documents_of(*model.tokenizer, kTexts);
  const Perplexity result = perplexity(*model.model, documents, {});
  double sum = 0.0;
  std::int64_t tokens = 0;
  for (const PositionLoss& position : result.positions) {
    EXPECT_EQ(position.first, position.last == 1 ? 1 : position.last / 2 + 1);
    sum += position.loss.mean * static_cast<double>(position.loss.values);
    tokens += position.loss.values;
  }
  EXPECT_EQ(tokens, result.tokens);
  EXPECT_NEAR(sum / static_cast<double>(tokens), result.loss.mean, 1e-9);
  double third = 0.0;  // tokens that follow three or four others; the last document has three tokens
  for (std::size_t d = 0; d < 3; ++d)
    for (std::int64_t i = 3; i <= (d < 2 ? 4 : 3); ++i) third -= Directly(*model.model, documents[d]).after(i, i);
  ASSERT_EQ(result.positions[2].loss.values, 5);
  EXPECT_NEAR(result.positions[2].loss.mean, third / 5.0, 1e-5);
}

TEST(Perplexity, WindowsScoreEveryTokenOnceWithTheContextTheyHave) {
  const LanguageModel model = small_language_model();
  const auto documents = documents_of(*model.tokenizer, kTexts);
  for (const auto& [context, stride] : std::vector<std::pair<std::int64_t, std::int64_t>>{{16, 5}, {8, 0}}) {
    double sum = 0.0;
    std::int64_t tokens = 0;
    for (const TextDocument& document : documents) {
      Directly directly(*model.model, document);
      const std::int64_t last = std::ssize(document.tokens) - 1, step = stride == 0 ? context : stride;
      for (std::int64_t i = 1; i <= last; ++i, ++tokens) {
        const std::int64_t window = i <= context ? 0 : (i - context + step - 1) / step;
        const std::int64_t end = std::min(last, context + window * step);  // the last token of its window
        sum -= directly.after(i, i - std::max<std::int64_t>(0, end - context));
      }
    }
    const Perplexity result = perplexity(*model.model, documents, {.context = context, .stride = stride});
    EXPECT_NEAR(result.loss.mean, sum / static_cast<double>(tokens), 1e-5) << context << ", " << stride;
    EXPECT_EQ(result.loss.values, tokens);
  }
}

TEST(Perplexity, AWindowAsLongAsTheDocumentIsTheWholeDocument) {
  const LanguageModel model = small_language_model();
  const auto documents = documents_of(*model.tokenizer, kTexts);
  const Perplexity whole = perplexity(*model.model, documents, {});
  for (const std::int64_t stride : {0, 1, 50}) {
    const Perplexity windows = perplexity(*model.model, documents, {.context = 1000, .stride = stride});
    EXPECT_EQ(windows.loss.mean, whole.loss.mean);
    EXPECT_EQ(windows.loss.error, whole.loss.error);
  }
}

TEST(Perplexity, AnEqualModelHasTheVocabularyAsItsPerplexity) {
  const LanguageModel model = small_language_model();
  const torch::NoGradGuard no_gradient;
  for (const at::Tensor& parameter : model.model->parameters()) parameter.zero_();
  const Perplexity result = perplexity(*model.model, documents_of(*model.tokenizer, kTexts), {});
  EXPECT_NEAR(result.per_token(), 260.0, 1e-3);
  EXPECT_NEAR(result.loss.error, 0.0, 1e-6);
}

TEST(Perplexity, ErrorIsOverDocumentsOrOverStretchesOfFew) {
  const LanguageModel model = small_language_model(small_language_options({"linear"}));
  std::string many, one;
  for (int i = 0; i < 40; ++i) {
    many += std::string(static_cast<std::size_t>(3 + i % 7), static_cast<char>('a' + i % 26)) + " the\n<|endoftext|>\n";
    one += "the other theme " + std::string(static_cast<std::size_t>(60 + i), static_cast<char>('a' + i % 26));
  }
  const auto documents = documents_of(*model.tokenizer, many);
  ASSERT_EQ(documents.size(), 40U);
  const Perplexity result = perplexity(*model.model, documents, {});
  EXPECT_EQ(result.clusters, "documents");
  EXPECT_EQ(result.loss.clusters, 40);
  // By the definition: a ratio of two means over documents.
  double squares = 0.0;
  for (const TextDocument& document : documents) {
    const Perplexity alone = perplexity(*model.model, {document}, {});
    const double difference = (alone.loss.mean - result.loss.mean) * static_cast<double>(alone.tokens);
    squares += difference * difference;
  }
  const double error = std::sqrt(squares * 40.0 / 39.0) / static_cast<double>(result.tokens);
  EXPECT_NEAR(result.loss.error, error, 1e-4 * error + 1e-9);
  const Perplexity stretches = perplexity(*model.model, documents_of(*model.tokenizer, one), {});
  EXPECT_EQ(stretches.clusters, "stretches of 1,024 tokens");
  EXPECT_EQ(stretches.loss.clusters, (stretches.tokens + 1023) / 1024);
  EXPECT_TRUE(std::isnan(perplexity(*model.model, {documents[0]}, {}).loss.error));
}

TEST(TextDocuments, TokensOfASplitAreTheDocumentsOfItsText) {
  const mhla::testing::TemporaryFolder folder;
  const auto tokenizer = small_language_model().tokenizer;
  io::write_file(folder / "a.txt", kTexts);
  data::tokenize_files(*tokenizer, {folder / "a.txt"}, folder / "tokens", 10);
  const auto text = text_documents(*tokenizer, {(folder / "a.txt").string()});
  const auto tokens = text_documents(*tokenizer, {(folder / "tokens").string()});
  ASSERT_EQ(tokens.size(), text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_EQ(tokens[i].tokens, text[i].tokens);
    EXPECT_EQ(tokens[i].bytes, text[i].bytes);
    EXPECT_EQ(tokens[i].words, text[i].words);
  }
  EXPECT_EQ(text_documents(*tokenizer, {(folder / "tokens").string(), (folder / "a.txt").string()}, 4).size(), 4U);
  EXPECT_EQ(text_documents(*tokenizer, {(folder / "a.txt").string()}, 2).size(), 2U);
}

TEST(TextDocuments, WrongDataIsNamed) {
  const mhla::testing::TemporaryFolder folder;
  const LanguageModel model = small_language_model();
  const auto read = [&](const std::string& name) {
    return text_documents(*model.tokenizer, {(folder / name).string()});
  };
  io::write_file(folder / "blank.txt", " \n\n");
  expect_error([&] { read("blank.txt"); }, {"blank.txt: no text"});
  expect_error([&] { read("none.txt"); }, {"none.txt"});
  const std::string other = mhla::testing::small_sentence_piece();
  io::write_file(folder / "other.model", other);
  io::write_file(folder / "a.txt", "the theme");
  data::tokenize_files(*text::open_tokenizer(folder / "other.model"), {folder / "a.txt"}, folder / "tokens", 10);
  expect_error([&] { read("tokens"); }, {"tokens: the tokens are of the tokenizer", "but the model's is"});
  const std::vector<TextDocument> empty(1, {.tokens = {259}});
  expect_error([&] { perplexity(*model.model, empty, {}); }, {"document 1 is empty"});
  expect_error([&] { perplexity(*model.model, empty, {.context = 4, .stride = 5}); },
               {"stride is 5", "0 to the context, 4"});
  expect_error([&] { perplexity(*model.model, empty, {.context = -1}); }, {"context is -1"});
}

// Beyond the trained blocks the model says what can be done.
TEST(Perplexity, DocumentsLongerThanTheModelTakesNameTheWayOut) {
  models::LmOptions options = small_language_options();
  options.beyond = "error";
  const LanguageModel model = small_language_model(options);
  const auto documents = documents_of(*model.tokenizer, kTexts);
  expect_error([&] { perplexity(*model.model, documents, {}); }, {"trained for 4", "beyond may be clamp"});
  EXPECT_EQ(perplexity(*model.model, documents, {.context = 32}).documents, 3);
}

}  // namespace
}  // namespace mhla::tasks
