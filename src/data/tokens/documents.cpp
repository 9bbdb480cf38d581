// Which kind of text a file holds is said by its name, whether it is compressed by its first bytes.
#include "data/tokens/documents.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "io/gzip.hpp"
#include "io/json.hpp"
#include "io/mapped_file.hpp"
#include "io/tar.hpp"
#include "io/utf8.hpp"
#include "mhla/types.hpp"

namespace mhla::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSeparator = "<|endoftext|>";

using Take = std::function<void(std::string_view document, double done)>;

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// What is at the beginning of `text` up to the end of the line, which is taken away.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

// The first byte that is not UTF-8.
std::optional<std::size_t> first_broken_byte(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const io::Utf8Character character = io::first_character(text.substr(at));
    if (character.state != io::Utf8Character::State::complete) return at;
    at += character.size;
  }
  return std::nullopt;
}

// The documents of one file that is no archive.
class TextReader {
 public:
  TextReader(std::string name, std::string_view text, const Take& take)
      : name_(std::move(name)), text_(text), take_(take) {}

  void read_plain() {
    for (std::string_view rest = text_; !rest.empty();) {
      const std::size_t end = next_separator(rest);
      give(rest.substr(0, end), end_of(rest) + end);
      rest.remove_prefix(end);
      take_line(rest);
    }
  }

  void read_json_lines() {
    std::string_view rest = text_;
    for (std::int64_t number = 1; !rest.empty(); ++number) {
      const std::string_view line = take_line(rest);
      if (is_blank(line)) continue;
      const std::string where = fmt::format("{}: line {}", name_, number);
      const io::Json json = io::parse_json(line, where);
      const auto member = json.is_object() ? json.find("text") : json.end();
      if (member == json.end() || !member->is_string())
        throw Error(fmt::format("{}: must be an object with a text as its member \"text\"", where));
      const auto& document = member->get_ref<const std::string&>();
      if (!is_blank(document)) take_(document, share(end_of(rest)));
    }
  }

 private:
  std::size_t end_of(std::string_view rest) const { return static_cast<std::size_t>(rest.data() - text_.data()); }
  double share(std::size_t place) const { return static_cast<double>(place) / static_cast<double>(text_.size()); }

  // Where the next separating line begins, or the end.
  std::size_t next_separator(std::string_view rest) const {
    for (std::size_t at = 0; (at = rest.find(kSeparator, at)) != std::string_view::npos; at += kSeparator.size()) {
      const bool begins = at == 0 ? end_of(rest) == 0 || text_[end_of(rest) - 1] == '\n' : rest[at - 1] == '\n';
      const std::string_view after = rest.substr(at + kSeparator.size());
      if (begins && (after.empty() || after.starts_with('\n') || after.starts_with("\r\n"))) return at;
    }
    return rest.size();
  }

  void give(std::string_view document, std::size_t end) {
    if (const auto broken = first_broken_byte(document)) {
      const std::string_view before = text_.substr(0, end - document.size() + *broken);
      throw Error(fmt::format("{}: line {} is not UTF-8 text", name_, 1 + std::ranges::count(before, '\n')));
    }
    if (!is_blank(document)) take_(document, share(end));
  }

  const std::string name_;
  const std::string_view text_;
  const Take& take_;
};

std::string_view without_gz(std::string_view name) {
  if (name.ends_with(".gz")) name.remove_suffix(3);
  return name;
}

bool is_archive(std::string_view name) { return name.ends_with(".tgz") || without_gz(name).ends_with(".tar"); }

}  // namespace

std::vector<fs::path> files_of_text(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  for (const fs::path path : paths) {
    std::error_code failure;
    if (!fs::is_directory(path, failure)) {
      files.push_back(path);
      continue;
    }
    std::vector<fs::path> below;
    fs::recursive_directory_iterator entries(path, failure);
    for (; !failure && entries != fs::recursive_directory_iterator{}; entries.increment(failure)) {
      const bool hidden = entries->path().filename().string().starts_with('.');
      if (hidden && entries->is_directory()) entries.disable_recursion_pending();
      if (!hidden && entries->is_regular_file()) below.push_back(entries->path());
    }
    if (failure) throw Error(fmt::format("{}: cannot be listed: {}", path.string(), failure.message()));
    if (below.empty()) throw Error(fmt::format("{}: the folder has no files", path.string()));
    std::ranges::sort(below);
    files.insert(files.end(), below.begin(), below.end());
  }
  return files;
}

void for_each_document(const std::string& name, std::span<const std::byte> bytes, const Take& take) {
  std::vector<std::byte> unpacked;
  if (io::is_gzip(bytes)) bytes = unpacked = io::gunzip(bytes, name);
  TextReader reader(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, take);
  if (without_gz(name).ends_with(".jsonl"))
    reader.read_json_lines();
  else
    reader.read_plain();
}

void for_each_document(const fs::path& file, const Take& take) {
  const std::string name = file.string();
  if (!is_archive(name)) return for_each_document(name, io::MappedFile(file).bytes, take);
  const io::TarArchive archive = io::TarArchive::load(file);
  const auto count = static_cast<double>(archive.files().size());
  double before = 0.0;
  for (const io::TarEntry& entry : archive.files()) {
    for_each_document(fmt::format("{}: {}", name, entry.name), entry.data,
                      [&](std::string_view document, double done) { take(document, (before + done) / count); });
    before += 1.0;
  }
}

}  // namespace mhla::data
