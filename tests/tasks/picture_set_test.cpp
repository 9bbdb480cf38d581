// Pictures by class and number.
#include "tasks/generate/picture_set.hpp"

#include <gtest/gtest.h>

#include <set>

#include "models/small_generator.hpp"
#include "support/expect_error.hpp"
#include "tasks/usage_error.hpp"

namespace mhla::tasks {
namespace {

using Labels = std::vector<std::int64_t>;

models::LoadedGenerator with_names(std::vector<std::string> names) {
  return {models::testing::small_generator(), {.classes = std::move(names)}};
}

TEST(PictureSet, ClassesAreNamesOrNumbers) {
  const auto animals = with_names({"cat", "dog", "owl", "1"});
  EXPECT_EQ(parse_classes({"owl", "0"}, animals), (Labels{2, 0}));
  EXPECT_EQ(parse_classes({"1"}, animals), (Labels{3}));  // a name before a number
  EXPECT_EQ(parse_classes({"all"}, animals), (Labels{0, 1, 2, 3}));
  EXPECT_EQ(parse_classes({"none"}, animals), (Labels{4}));
  EXPECT_EQ(class_name(2, animals), "owl");
  EXPECT_EQ(class_name(4, animals), "none");
  EXPECT_EQ(parse_classes({"1", "3"}, with_names({})), (Labels{1, 3}));
  EXPECT_EQ(class_name(3, with_names({})), "3");
}

TEST(PictureSet, AnUnknownClassIsAnErrorThatListsThoseThereAre) {
  const auto animals = with_names({"cat", "dog", "owl", "eel"});
  for (const char* wrong : {"cow", "4", "-1", "", "1.0", "01x"})
    expect_error(
        [&] { parse_classes({"cat", wrong}, animals); },
        {std::string("--class is \"") + wrong + "\"; it may be all, none, a number from 0 to 3, or a name: cat"});
  expect_error([&] { parse_classes({"cow"}, with_names({})); },
               {"--class is \"cow\"; it may be all, none, a number from 0 to 3"});
}

TEST(PictureSet, NoiseBelongsToTheClassAndTheNumberWhateverElseIsDrawn) {
  const auto numbers = [](const PictureSet& set) {
    SampleRequest request;
    set.ask_for(request, 0, set.size(), 4);
    return request.numbers;
  };
  const PictureSet all{.classes = {0, 1, 2, 3, 4}, .count = 3};
  const Labels drawn = numbers(all);
  EXPECT_EQ(std::set(drawn.begin(), drawn.end()).size(), 15U);
  EXPECT_EQ(numbers({.classes = {2}, .count = 1, .first = 1}), (Labels{drawn[2 * 3 + 1]}));
  SampleRequest part;
  all.ask_for(part, 7, 9, 4);
  EXPECT_EQ(part.numbers, (Labels{drawn[7], drawn[8]}));
  EXPECT_EQ(part.classes, (Labels{2, 2}));
}

}  // namespace
}  // namespace mhla::tasks
