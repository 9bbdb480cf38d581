// Files of questions: `<task>.jsonl`, one JSON object a line, in a folder or a tar archive.
//
//   multiple choice   "query", "choices" (at least two texts), "label" (index of the right one)
//   last word         "context", "target"
//
// `passage` and `subject` belong to some tasks. Members that are not known are left alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mhla::tasks {

struct TaskItem {
  std::string query, passage, subject;
  std::vector<std::string> choices;
  std::int64_t label = 0;
  std::string context, target;  // of a last word
};

// Throws an Error that names the line of what is none of the two.
std::vector<TaskItem> parse_task_items(std::span<const std::byte> bytes, const std::string& source);

class TaskFiles {
 public:
  explicit TaskFiles(const std::filesystem::path& path);

  const std::vector<std::string>& names() const { return names_; }  // without .jsonl, in order
  std::vector<TaskItem> items(const std::string& name) const;       // `name` is one of them

 private:
  struct Content;
  std::shared_ptr<const Content> content_;
  std::vector<std::string> names_;
};

}  // namespace mhla::tasks
