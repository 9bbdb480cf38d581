// Questions: files, texts as the harness makes them, and scores by brute force.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "support/expect_error.hpp"
#include "support/small_language_model.hpp"
#include "support/temporary_folder.hpp"
#include "tasks/language/evaluation.hpp"

namespace mhla::tasks {
namespace {

using mhla::testing::small_language_model;

std::vector<TaskItem> items_of(const std::string& text) {
  return parse_task_items(std::as_bytes(std::span(text)), "t.jsonl");
}

using Texts = std::vector<std::pair<std::string, std::string>>;

Texts texts_of(const std::string& task, const std::string& line) {
  Texts texts;
  const std::vector<Question> questions = questions_of(task_kind(task), items_of(line));
  for (const PossibleAnswer& choice : questions[0].choices) texts.emplace_back(choice.context, choice.goes_on);
  return texts;
}

TEST(TaskPrompts, AreThoseOfTheHarness) {
  const std::string query = R"({"query": "Why?", "choices": ["so", "no "], "label": 1})";
  const Texts asked = {{"Question: Why?\nAnswer:", " so"}, {"Question: Why?\nAnswer:", " no "}};
  for (const char* task : {"piqa", "arc_easy", "arc_challenge"}) EXPECT_EQ(texts_of(task, query), asked);
  for (const char* task : {"openbookqa", "hellaswag"})
    EXPECT_EQ(texts_of(task, query), (Texts{{"Why?", " so"}, {"Why?", " no "}}));
  EXPECT_EQ(texts_of("social_iqa", query), (Texts{{"Q: Why?\nA:", " so"}, {"Q: Why?\nA:", " no "}}));
  EXPECT_EQ(texts_of("boolq", R"({"passage": "It is.", "query": "is it", "choices": ["no", "yes"], "label": 1})"),
            (Texts{{"It is.\nQuestion: is it?\nAnswer:", " no"}, {"It is.\nQuestion: is it?\nAnswer:", " yes"}}));
  EXPECT_EQ(texts_of("winogrande", R"({"query": "He gave _ a book.  ", "choices": ["A", "Bo"], "label": 0})"),
            (Texts{{"He gave A", " a book."}, {"He gave Bo", " a book."}}));
  EXPECT_EQ(texts_of("lambada_openai", R"({"context": "one two", "target": " three"})"),
            (Texts{{"one two", " three"}}));
  const std::string exam =
      "The following are multiple choice questions (with answers) about high school physics.\n\nHow far?\nA. 1\nB. "
      "2\nC. "
      "3\nD. 4\nAnswer:";
  EXPECT_EQ(texts_of("mmlu", R"({"subject": "high_school_physics", "query": " How far? ",)"
                             R"("choices": ["1", "2", "3", "4"], "label": 3})"),
            (Texts{{exam, " A"}, {exam, " B"}, {exam, " C"}, {exam, " D"}}));
}

TEST(TaskPrompts, ExamplesComeBetweenHeadingAndQuestion) {
  const auto items = items_of(R"({"subject": "law", "query": "Q", "choices": ["1", "2", "3", "4"], "label": 3})");
  const auto examples = items_of(R"({"subject": "art", "query": "X", "choices": ["1", "2", "3", "4"], "label": 0})"
                                 "\n"
                                 R"({"subject": "law", "query": "E", "choices": ["5", "6", "7", "8"], "label": 1})");
  const auto questions = questions_of(task_kind("mmlu"), items, {examples, 1});
  EXPECT_EQ(questions[0].choices[0].context,
            "The following are multiple choice questions (with answers) about law.\n\nE\nA. 5\nB. 6\nC. 7\nD. "
            "8\nAnswer: B\n\nQ\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:");
  expect_error([&] { questions_of(task_kind("mmlu"), items, {examples, 2}); }, {"mmlu: question 1", "1 examples", "2"});
}

TEST(TaskItems, WrongLinesAreNamed) {
  const auto refused = [](const std::string& line, std::initializer_list<std::string_view> mentions) {
    expect_error([&] { items_of("\n" + line + "\n"); }, mentions);
  };
  refused("[1]", {"t.jsonl: line 2", "object"});
  refused("{\"query\": ", {"t.jsonl: line 2"});
  refused(R"({"choices": ["a", "b"], "label": 0})", {"line 2: \"query\" is missing"});
  refused(R"({"query": "q", "choices": "ab", "label": 0})", {"\"choices\" is of another type"});
  refused(R"({"query": "q", "choices": ["a"], "label": 0})", {"\"choices\" has 1 entries"});
  refused(R"({"query": "q", "choices": ["a", ""], "label": 0})", {"one that is empty"});
  refused(R"({"query": "q", "choices": ["a", "b"], "label": 2})", {"\"label\" is 2; it may be 0 to 1"});
  refused(R"({"query": "q", "choices": ["a", "b"], "label": 0.5})", {"\"label\" is of another type"});
  refused(R"({"target": "a"})", {"\"context\" is missing"});
  refused(R"({"context": "a", "target": " "})", {"\"target\" is empty"});
  expect_error([] { items_of("\n \n"); }, {"t.jsonl: the file has no questions"});
  expect_error([] { texts_of("winogrande", R"({"query": "q", "choices": ["a", "b"], "label": 0})"); },
               {"winogrande: question 1", "no blank"});
  expect_error([] { texts_of("mmlu", R"({"query": "q", "choices": ["a", "b"], "label": 0})"); },
               {"mmlu: question 1", "2 choices instead of 4"});
  expect_error([] { texts_of("piqa", R"({"context": "a", "target": "b"})"); }, {"piqa: question 1", "last word"});
  expect_error([] { texts_of("lambada_openai", R"({"query": "q", "choices": ["a", "b"], "label": 0})"); },
               {"lambada_openai: question 1"});
  expect_error([] { static_cast<void>(task_kind("guess")); }, {"task \"guess\"", "piqa", "lambada_openai"});
}

TEST(TaskFiles, WhatIsNotThereIsNamed) {
  const mhla::testing::TemporaryFolder folder;
  const LanguageModel model = small_language_model();
  const auto open = [&](const std::vector<std::string>& tasks) {
    return open_tasks(model, {.files = folder.path(), .tasks = tasks});
  };
  expect_error([&] { open({}); }, {"no file <task>.jsonl"});
  io::write_file(folder / "other.jsonl", "{}");
  expect_error([&] { open({}); }, {"none of its files is a task that is known: other"});
  expect_error([&] { open({"piqa"}); }, {"there is no piqa.jsonl for the task piqa; there are other"});
  expect_error([&] { open({"guess"}); }, {"task \"guess\""});
  io::write_file(folder / "not.tar", "text");
  expect_error([&] { TaskFiles(folder / "not.tar"); }, {"not.tar"});
}

// As the harness computes them, from the logits of every text on its own.
TEST(ZeroShot, ScoresAreThoseOfBruteForce) {
  const mhla::testing::TemporaryFolder folder;
  const LanguageModel model = small_language_model();
  std::string lines, words;
  for (int i = 0; i < 7; ++i) {
    const std::string name(static_cast<std::size_t>(i % 3 + 1), static_cast<char>('a' + i));
    lines += R"({"query": "What is the )" + name + R"(", "choices": [")" + name + R"( theme", "caf\u00E9 them", "x)" +
             name + R"("], "label": )" + std::to_string(i % 3) + "}\n";
    words += R"({"context": "then the )" + name + R"(", "target": " the"})" + std::string("\n");
  }
  io::write_file(folder / "piqa.jsonl", lines);
  io::write_file(folder / "lambada_openai.jsonl", words);
  const auto tasks = open_tasks(model, {.files = folder.path()});
  ASSERT_EQ(tasks.size(), 2U);

  const auto log_likelihood = [&](const std::string& context, const std::string& goes_on) {
    const torch::NoGradGuard no_gradient;
    const Continuation text = continuation_of(*model.tokenizer, context, goes_on);
    const at::Tensor scores =
        model.model->forward(torch::tensor(text.tokens).unsqueeze(0))[0].to(at::kDouble).log_softmax(1);
    double sum = 0.0;
    for (std::int64_t i = text.from; i < std::ssize(text.tokens); ++i)
      sum += scores[i - 1][text.tokens[static_cast<std::size_t>(i)]].item<double>();
    return sum;
  };
  double right = 0.0, right_normalised = 0.0, sum = 0.0;
  for (int i = 0; i < 7; ++i) {
    const std::string name(static_cast<std::size_t>(i % 3 + 1), static_cast<char>('a' + i));
    int best = 0, best_normalised = 0;
    double most = -1e30, most_normalised = -1e30;
    const std::vector<std::pair<std::string, double>> choices = {
        {name + " theme", 6.0 + static_cast<double>(name.size())},
        {"café them", 9.0},
        {"x" + name, 1.0 + static_cast<double>(name.size())}};
    for (int k = 0; k < 3; ++k) {
      const auto& [text, letters] = choices[static_cast<std::size_t>(k)];
      const double value = log_likelihood("Question: What is the " + name + "\nAnswer:", " " + text);
      if (value > most) most = value, best = k;
      if (value / letters > most_normalised) most_normalised = value / letters, best_normalised = k;
    }
    right += best == i % 3 ? 1.0 : 0.0;
    right_normalised += best_normalised == i % 3 ? 1.0 : 0.0;
    sum += log_likelihood("then the " + name, " the");
  }
  const TaskScore piqa = tasks[0].score(*model.model);
  EXPECT_EQ(piqa.task, "piqa");
  EXPECT_EQ(piqa.questions, 7);
  EXPECT_DOUBLE_EQ(piqa.accuracy.value, right / 7.0);
  EXPECT_DOUBLE_EQ(piqa.normalised.value().value, right_normalised / 7.0);
  const double p = right / 7.0;
  EXPECT_NEAR(piqa.accuracy.error, std::sqrt(p * (1.0 - p) / 6.0), 1e-12);
  EXPECT_NEAR(piqa.chance, 1.0 / 3.0, 1e-12);
  EXPECT_FALSE(piqa.perplexity);
  const TaskScore lambada = tasks[1].score(*model.model, 16);
  EXPECT_NEAR(std::log(lambada.perplexity.value().value), -sum / 7.0, 1e-5);
  EXPECT_EQ(tasks[0].score(*model.model, 20).accuracy.value, piqa.accuracy.value);
}

TEST(ZeroShot, LimitTakesTheFirstQuestions) {
  const mhla::testing::TemporaryFolder folder;
  const LanguageModel model = small_language_model();
  const std::string line = R"({"query": "q", "choices": ["a", "b"], "label": 0})";
  io::write_file(folder / "openbookqa.jsonl", line + "\n" + line + "\n" + line);
  EXPECT_EQ(open_tasks(model, {.files = folder.path(), .limit = 2})[0].score(*model.model).questions, 2);
  const TaskScore one = open_tasks(model, {.files = folder.path(), .limit = 1})[0].score(*model.model);
  EXPECT_TRUE(std::isnan(one.accuracy.error));
}

// Contexts longer than the model takes lose their beginnings.
TEST(ZeroShot, LongContextsAreShortenedAndCounted) {
  const mhla::testing::TemporaryFolder folder;
  models::LmOptions options = mhla::testing::small_language_options();
  options.beyond = "error";
  const LanguageModel model = small_language_model(options);
  io::write_file(folder / "hellaswag.jsonl",
                 R"({"query": ")" + std::string(90, 'a') + R"(", "choices": ["b", "c"], "label": 0})");
  EXPECT_EQ(open_tasks(model, {.files = folder.path()})[0].score(*model.model).shortened, 2);
}

}  // namespace
}  // namespace mhla::tasks
