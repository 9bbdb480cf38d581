// The tasks that are known, and how their questions become texts: as lm-evaluation-harness asks them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tasks/language/task_files.hpp"

namespace mhla::tasks {

// What goes on is scored after its context.
struct PossibleAnswer {
  std::string context, goes_on;
  std::int64_t letters = 0;  // characters of the answer: what acc_norm divides by
};

struct Question {
  std::vector<PossibleAnswer> choices = {};  // one: a last word
  std::int64_t right = 0;
};

struct TaskKind {
  const char* name;
  const char* file;                            // its questions, without .jsonl
  const char* examples;                        // those that may come before a question; nullptr: none
  bool last_word;                              // accuracy of a greedy answer and perplexity; else of choices
  bool normalised;                             // acc_norm belongs to its results
  Question (*question)(const TaskItem& item);  // throws an Error where something is wrong with the item
};

std::span<const TaskKind> task_kinds();
const TaskKind& task_kind(const std::string& name);  // an Error lists those there are

// `count` items before each question of the same subject, with their answers.
struct Shots {
  std::vector<TaskItem> items;
  std::int64_t count = 0;
};

std::vector<Question> questions_of(const TaskKind& kind, std::span<const TaskItem> items, const Shots& shots = {});

}  // namespace mhla::tasks
