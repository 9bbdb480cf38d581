// The model a command uses when it is not told which.
#include "tasks/pretrained.hpp"

#include <gtest/gtest.h>

#include "models/classifier_file.hpp"
#include "models/classifiers.hpp"
#include "models/generator_file.hpp"
#include "models/small_generator.hpp"
#include "models/small_model.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::tasks {
namespace {

namespace fs = std::filesystem;

TEST(Pretrained, EachTaskFindsItsOwnModelInTheFolder) {
  const mhla::testing::TemporaryFolder folder;
  models::save_generator(*models::testing::small_generator(), folder / "pretrained/a.safetensors", {});
  models::save_classifier(*models::make_classifier(models::testing::small_options()),
                          folder / "pretrained/b.safetensors", {});
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  EXPECT_EQ(pretrained_path("", "generate"), fs::path("pretrained/a.safetensors"));
  EXPECT_EQ(pretrained_path("", "classify"), fs::path("pretrained/b.safetensors"));
  EXPECT_EQ(pretrained_path("given", "generate"), fs::path("given"));
  fs::copy(folder / "pretrained/a.safetensors", folder / "pretrained/c.safetensors");
  expect_error([] { pretrained_path("", "generate"); },
               {"--model is needed, since there are several: pretrained/a.safetensors, pretrained/c.safetensors"});
  fs::current_path(before);
}

}  // namespace
}  // namespace mhla::tasks
