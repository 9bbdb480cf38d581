// A model opens with its own tokenizer and with no other.
#include "tasks/language/language_model.hpp"

#include <gtest/gtest.h>

#include "io/file.hpp"
#include "support/expect_error.hpp"
#include "support/small_tokenizers.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::tasks {
namespace {

using mhla::testing::TemporaryFolder;

class LanguageModelFiles : public ::testing::Test {
 protected:
  LanguageModelFiles() {
    io::write_file(folder_ / "run/tokenizer.json", mhla::testing::small_tokenizer_json());
    io::write_file(folder_ / "other.model", mhla::testing::small_sentence_piece());
    save("run/model.safetensors", 260);
  }

  void save(const std::string& name, std::int64_t vocabulary) const {
    models::LmOptions options;
    options.model = "lm_tiny";
    options.width = 32, options.depth = 1, options.heads = 2, options.vocabulary = vocabulary;
    save_language_model(models::Lm(options), *text::open_tokenizer(folder_ / "run"), folder_ / name);
  }

  TemporaryFolder folder_;
};

TEST_F(LanguageModelFiles, OfAFolderHaveItsName) {
  const LanguageModel opened = open_language_model(folder_ / "run");
  EXPECT_EQ(opened.name, "run");
  EXPECT_EQ(opened.tokenizer->size(), 260);
  EXPECT_FALSE(opened.model->is_training());
}

TEST_F(LanguageModelFiles, TheTokenizerIsBesideTheFile) {
  EXPECT_EQ(open_language_model(folder_ / "run/model.safetensors").name, "model");
  save("books.safetensors", 260);
  expect_error([&] { open_language_model(folder_ / "books.safetensors"); }, {"the folder has no tokenizer.json"});
  io::write_file(folder_ / "books_tokenizer.json", mhla::testing::small_tokenizer_json());
  EXPECT_EQ(open_language_model(folder_ / "books.safetensors").name, "books");
}

TEST_F(LanguageModelFiles, AnotherTokenizerIsRefused) {
  expect_error([&] { open_language_model(folder_ / "run", folder_ / "other.model"); },
               {"knows 260 tokens, but the tokenizer has", "--tokenizer names another"});
  save("wide/model.safetensors", 1000);
  expect_error([&] { open_language_model(folder_ / "wide", folder_ / "other.model"); },
               {"was trained with the tokenizer", "--tokenizer names another"});
}

}  // namespace
}  // namespace mhla::tasks
