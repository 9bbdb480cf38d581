// Classes by name, and the pictures of classes.
#include "tasks/generate/picture_set.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

#include "io/printable.hpp"
#include "tasks/usage_error.hpp"

namespace mhla::tasks {
namespace {

constexpr const char *kAll = "all", *kNone = "none";
constexpr std::size_t kMostNames = 100;  // in a message

std::optional<std::int64_t> whole_number(const std::string& text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, value);
  return failure == std::errc{} && rest == end ? std::optional(value) : std::nullopt;
}

std::string known_names(const std::vector<std::string>& names) {
  if (names.empty()) return "";
  const std::span shown(names.data(), std::min(names.size(), kMostNames));
  return io::printable(
      fmt::format(", or a name: {}{}", fmt::join(shown, ", "), names.size() > kMostNames ? ", ..." : ""));
}

}  // namespace

void PictureSet::ask_for(SampleRequest& request, std::int64_t begin, std::int64_t end,
                         std::int64_t classes_in_all) const {
  request.classes.clear();
  request.numbers.clear();
  for (std::int64_t picture = begin; picture < end; ++picture) {
    request.classes.push_back(label(picture));
    request.numbers.push_back(number(picture) * (classes_in_all + 1) + label(picture));
  }
}

std::vector<std::int64_t> parse_classes(const std::vector<std::string>& wanted,
                                        const models::LoadedGenerator& generator, const char* argument) {
  const std::int64_t in_all = generator.model->options.classes;
  const std::vector<std::string>& names = generator.facts.classes;
  std::vector<std::int64_t> labels;
  for (const std::string& text : wanted) {
    const auto found = std::ranges::find(names, text);
    const auto number = whole_number(text);
    if (found != names.end())
      labels.push_back(found - names.begin());
    else if (number && *number >= 0 && *number < in_all)
      labels.push_back(*number);
    else if (text == kNone)
      labels.push_back(generator.model->null_class());
    else if (text == kAll)
      for (std::int64_t label = 0; label < in_all; ++label) labels.push_back(label);
    else
      throw UsageError(fmt::format("{} is \"{}\"; it may be {}, {}, a number from 0 to {}{}", argument,
                                   io::printable(text), kAll, kNone, in_all - 1, known_names(names)));
  }
  return labels;
}

std::string class_name(std::int64_t label, const models::LoadedGenerator& generator) {
  if (label == generator.model->null_class()) return kNone;
  const std::vector<std::string>& names = generator.facts.classes;
  return names.empty() ? std::to_string(label) : names[static_cast<std::size_t>(label)];
}

}  // namespace mhla::tasks
