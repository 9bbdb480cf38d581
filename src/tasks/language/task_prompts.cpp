// One function for each way of asking.
#include "tasks/language/task_prompts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "mhla/types.hpp"

namespace mhla::tasks {
namespace {

constexpr std::string_view kSpaces = " \t\r\n\v\f";

std::string stripped(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpaces), end = text.find_last_not_of(kSpaces);
  return begin == std::string_view::npos ? "" : std::string(text.substr(begin, end + 1 - begin));
}

std::int64_t letters_of(std::string_view text) {
  return std::ranges::count_if(text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; });
}

// Every answer after the same context, with a space between them.
Question after(const std::string& context, const std::vector<std::string>& answers, std::int64_t right) {
  Question question{.right = right};
  for (const std::string& answer : answers) question.choices.push_back({context, " " + answer, letters_of(answer)});
  return question;
}

Question question_and_answer(const TaskItem& item) {
  return after(fmt::format("Question: {}\nAnswer:", item.query), item.choices, item.label);
}

Question query_alone(const TaskItem& item) { return after(item.query, item.choices, item.label); }

Question passage_and_question(const TaskItem& item) {
  return after(fmt::format("{}\nQuestion: {}?\nAnswer:", item.passage, item.query), item.choices, item.label);
}

Question q_and_a(const TaskItem& item) { return after(fmt::format("Q: {}\nA:", item.query), item.choices, item.label); }

// The blank is filled in the context, and what follows it is scored.
Question filled_blank(const TaskItem& item) {
  const std::size_t blank = item.query.find('_');
  if (blank == std::string::npos) throw Error(fmt::format("\"{}\" has no blank, _", item.query));
  const std::string rest = stripped(item.query.substr(blank + 1));
  Question question{.right = item.label};
  for (const std::string& choice : item.choices)
    question.choices.push_back({item.query.substr(0, blank) + choice, " " + rest, letters_of(choice)});
  return question;
}

// An exam with letters for answers.
std::string exam_question(const TaskItem& item) {
  if (item.choices.size() != 4)
    throw Error(fmt::format("\"{}\" has {} choices instead of 4", item.query, item.choices.size()));
  return fmt::format("{}\nA. {}\nB. {}\nC. {}\nD. {}\nAnswer:", stripped(item.query), item.choices[0], item.choices[1],
                     item.choices[2], item.choices[3]);
}

constexpr std::array<std::string_view, 4> kLetters = {"A", "B", "C", "D"};

std::string exam_of(std::string subject) {
  std::ranges::replace(subject, '_', ' ');
  return fmt::format("The following are multiple choice questions (with answers) about {}.\n\n", subject);
}

Question exam(const TaskItem& item) {
  return after(exam_of(item.subject) + exam_question(item), {kLetters.begin(), kLetters.end()}, item.label);
}

Question last_word(const TaskItem& item) { return {.choices = {{item.context, item.target, letters_of(item.target)}}}; }

constexpr std::array kKinds = {
    TaskKind{"piqa", "piqa", nullptr, false, true, question_and_answer},
    TaskKind{"arc_easy", "arc_easy", nullptr, false, true, question_and_answer},
    TaskKind{"arc_challenge", "arc_challenge", nullptr, false, true, question_and_answer},
    TaskKind{"openbookqa", "openbookqa", nullptr, false, true, query_alone},
    TaskKind{"boolq", "boolq", nullptr, false, false, passage_and_question},
    TaskKind{"winogrande", "winogrande", nullptr, false, false, filled_blank},
    TaskKind{"social_iqa", "social_iqa", nullptr, false, false, q_and_a},
    TaskKind{"hellaswag", "hellaswag", nullptr, false, true, query_alone},
    TaskKind{"mmlu", "mmlu_test", "mmlu_dev", false, false, exam},
    TaskKind{"lambada_openai", "lambada_openai", nullptr, true, false, last_word},
};

// The examples of an exam go between its heading and the question.
void put_examples(const TaskItem& item, const Shots& shots, Question& question) {
  std::string before = exam_of(item.subject);
  const std::size_t heading = before.size();
  std::int64_t count = 0;
  for (const TaskItem& example : shots.items)
    if (example.subject == item.subject && count < shots.count) {
      before += fmt::format("{} {}\n\n", exam_question(example), kLetters[static_cast<std::size_t>(example.label)]);
      ++count;
    }
  if (count < shots.count)
    throw Error(
        fmt::format("there are {} examples of the subject \"{}\"; {} are asked for", count, item.subject, shots.count));
  for (PossibleAnswer& choice : question.choices) choice.context = before + choice.context.substr(heading);
}

}  // namespace

std::span<const TaskKind> task_kinds() { return kKinds; }

const TaskKind& task_kind(const std::string& name) {
  const auto* const found =
      std::ranges::find(kKinds, name, [](const TaskKind& kind) { return std::string(kind.name); });
  if (found != kKinds.end()) return *found;
  std::vector<std::string> names;
  names.reserve(kKinds.size());
  for (const TaskKind& kind : kKinds) names.emplace_back(kind.name);
  throw Error(fmt::format("task \"{}\" is not known; it may be {}", name, fmt::join(names, ", ")));
}

std::vector<Question> questions_of(const TaskKind& kind, std::span<const TaskItem> items, const Shots& shots) {
  std::vector<Question> questions;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (kind.last_word == items[i].target.empty())
      throw Error(fmt::format("{}: question {} is {}", kind.name, i + 1,
                              kind.last_word ? "no text with a last word" : "a text with a last word"));
    try {
      questions.push_back(kind.question(items[i]));
      if (shots.count > 0) put_examples(items[i], shots, questions.back());
    } catch (const Error& error) {
      throw Error(fmt::format("{}: question {}: {}", kind.name, i + 1, error.what()));
    }
  }
  return questions;
}

}  // namespace mhla::tasks
