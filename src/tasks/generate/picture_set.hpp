// Which pictures to draw: so many of each class, class after class. A picture is named by its class and its number in
// the class. Its noise depends on both and on the seed, and not on what else is drawn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/generator_file.hpp"
#include "tasks/generate/sampling.hpp"

namespace mhla::tasks {

struct PictureSet {
  std::vector<std::int64_t> classes;
  std::int64_t count = 1, first = 0;  // of each class, and the number of its first picture

  std::int64_t size() const { return static_cast<std::int64_t>(classes.size()) * count; }
  std::int64_t label(std::int64_t picture) const { return classes[static_cast<std::size_t>(picture / count)]; }
  std::int64_t number(std::int64_t picture) const { return first + picture % count; }

  // Pictures begin to end - 1 of the set, for a generator of `classes_in_all` classes.
  void ask_for(SampleRequest& request, std::int64_t begin, std::int64_t end, std::int64_t classes_in_all) const;
};

// Classes by name or number; "all" and "none", of pictures without a class. Throws a UsageError that names the argument
// and says what there is.
std::vector<std::int64_t> parse_classes(const std::vector<std::string>& wanted,
                                        const models::LoadedGenerator& generator, const char* argument = "--class");

std::string class_name(std::int64_t label, const models::LoadedGenerator& generator);

}  // namespace mhla::tasks
