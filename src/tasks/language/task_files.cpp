// Lines to items, from disk or from an archive.
#include "tasks/language/task_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "io/file.hpp"
#include "io/json.hpp"
#include "io/tar.hpp"
#include "mhla/types.hpp"

namespace mhla::tasks {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".jsonl";

class Line {
 public:
  Line(const io::Json& json, const std::string& where) : json_(json), where_(where) {
    if (!json.is_object()) refuse("must be a JSON object");
  }

  TaskItem item() const {
    TaskItem item;
    read("passage", item.passage, false);
    read("subject", item.subject, false);
    if (json_.contains("target")) {
      read("context", item.context, true);
      read("target", item.target, true);
      if (item.target.find_first_not_of(" \t\r\n") == std::string::npos) refuse("\"target\" is empty");
      return item;
    }
    read("query", item.query, true);
    read("choices", item.choices, true);
    read("label", item.label, true);
    if (item.choices.size() < 2)
      refuse(fmt::format("\"choices\" has {} entries; it must have at least 2", item.choices.size()));
    if (std::ranges::any_of(item.choices, &std::string::empty)) refuse("\"choices\" has one that is empty");
    if (item.label < 0 || item.label >= std::ssize(item.choices))
      refuse(fmt::format("\"label\" is {}; it may be 0 to {}", item.label, item.choices.size() - 1));
    return item;
  }

 private:
  template <typename Value>
  void read(const char* name, Value& value, bool needed) const {
    const auto member = json_.find(name);
    if (member == json_.end() && !needed) return;
    if (member == json_.end()) refuse(fmt::format("\"{}\" is missing", name));
    if (!io::read_exactly(*member, value)) refuse(fmt::format("\"{}\" is of another type", name));
  }
  [[noreturn]] void refuse(const std::string& what) const { throw Error(fmt::format("{}: {}", where_, what)); }

  const io::Json& json_;
  const std::string& where_;
};

bool is_task_file(const std::string& name) {
  return name.ends_with(kExtension) && name.size() > kExtension.size() && !name.starts_with('.');
}

std::string task_of(const std::string& name) { return name.substr(0, name.size() - kExtension.size()); }

}  // namespace

std::vector<TaskItem> parse_task_items(std::span<const std::byte> bytes, const std::string& source) {
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<TaskItem> items;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}: line {}", source, number);
    const io::Json json = io::parse_json(line, where);
    items.push_back(Line(json, where).item());
  }
  if (items.empty()) throw Error(fmt::format("{}: the file has no questions", source));
  return items;
}

struct TaskFiles::Content {
  std::string source;
  std::optional<io::TarArchive> archive;
  std::map<std::string, std::size_t> entries;  // of the archive
};

TaskFiles::TaskFiles(const fs::path& path) {
  auto content = std::make_shared<Content>();
  content->source = path.string();
  if (fs::is_directory(path)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(path))
      if (const std::string name = entry.path().filename().string(); entry.is_regular_file() && is_task_file(name))
        names_.push_back(task_of(name));
  } else {
    content->archive = io::TarArchive::load(path);
    for (std::size_t i = 0; i < content->archive->files().size(); ++i) {
      const std::string name = fs::path(content->archive->files()[i].name).filename().string();
      if (is_task_file(name) && content->entries.emplace(task_of(name), i).second) names_.push_back(task_of(name));
    }
  }
  if (names_.empty()) throw Error(fmt::format("{}: there is no file <task>.jsonl in it", path.string()));
  std::ranges::sort(names_);
  content_ = std::move(content);
}

std::vector<TaskItem> TaskFiles::items(const std::string& name) const {
  const std::string file = name + std::string(kExtension);
  if (!content_->archive) {
    const fs::path path = fs::path(content_->source) / file;
    return parse_task_items(io::read_file(path), path.string());
  }
  const auto entry = content_->entries.find(name);
  if (entry == content_->entries.end()) throw Error(fmt::format("{}: there is no {} in it", content_->source, file));
  return parse_task_items(content_->archive->files()[entry->second].data,
                          fmt::format("{}: {}", content_->source, file));
}

}  // namespace mhla::tasks
