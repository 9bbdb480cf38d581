// Configs of model files: what no model can have is refused by name, and at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/base/weights.hpp"
#include "models/classifier_file.hpp"
#include "models/classifiers.hpp"
#include "models/registry.hpp"
#include "models/small_model.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"
#include "tensor_io/tensors.hpp"

namespace mhla::models {
namespace {

class BadConfig : public ::testing::Test {
 protected:
  void refused(const std::string& config, std::initializer_list<std::string_view> mentions) {
    io::save_tensors(file_, {{"head.weight", torch::zeros({5, 24})}}, {{"mhla.config", config}});
    expect_error([&] { load_classifier(file_); }, mentions);
  }

  mhla::testing::TemporaryFolder folder_;
  std::filesystem::path file_ = folder_ / "model.safetensors";
};

TEST_F(BadConfig, NumbersAreWhatTheyShouldBe) {
  for (const char* member : {R"("heads": 1.5)",       R"("heads": true)",
                             R"("heads": -1)",        R"("depth": -1)",
                             R"("depth": 1e30)",      R"("width": 9223372036854775808)",
                             R"("width": "64")",      R"("classes": 0)",
                             R"("patch": 0)",         R"("patch": null)",
                             R"("blocks": [4])",      R"("blocks": [4, 4.5])",
                             R"("blocks": [4, 0])",   R"("image_size": [224, true])",
                             R"("image_size": 224)",  R"("image_size": [65536, 65536])",
                             R"("lepe": 1)",          R"("drop_path": "0")",
                             R"("drop_path": 1)",     R"("attention": [1])",
                             R"("attention": "mhla")"}) {
    const std::string text = member;
    refused("{" + text + "}", {"model.safetensors: metadata \"mhla.config\": ", text.substr(1, text.find('"', 1) - 1)});
  }
}

// Each of them allows the model, but it would take minutes and all memory to find that its tensors are not there.
TEST_F(BadConfig, AModelLargerThanItsFileIsNotMade) {
  for (const char* config : {R"({"width": 4096, "depth": 1024, "heads": 64})",
                             R"({"model": "vlt_tiny", "width": 4096, "depth": 1024, "heads": 64})",
                             R"({"image_size": [8192, 8192], "patch": 1, "blocks": [128, 128], "depth": 1})",
                             R"({"classes": 1048576, "width": 65536, "depth": 1, "heads": 1})",
                             R"({"attention": ["softmax"], "image_size": [11585, 11585], "patch": 1, "depth": 1})"})
    refused(config, {"model.safetensors: metadata \"mhla.config\": such a model has at least",
                     "but the tensors of the file have 120"});
}

TEST_F(BadConfig, PreprocessingOfAnotherTypeIsRefused) {
  for (const char* text : {R"({"mean": [0, 0, true], "std": [1, 1, 1], "crop_fraction": 1})", "[]", "7",
                           R"({"mean": [0, 0], "std": [1, 1, 1], "crop_fraction": 1})"}) {
    const auto model = make_classifier(testing::small_options());
    save_model(*model, file_, {{"mhla.preprocessing", text}});
    expect_error([&] { load_classifier(file_); }, {"metadata \"mhla.preprocessing\" is not {\"mean\""});
  }
}

// Never more than the tensors have, and most of it.
TEST(LeastElements, AreNearlyAllOfTheModels) {
  ClassifierOptions options = testing::small_options();
  options.heads = 2;
  for (const char* model : {"deit_tiny", "vlt_tiny"})
    for (const char* preset : {"paper", "authors"})
      for (const char* attention : {"softmax", "linear", "mhla"})
        for (const std::int64_t width : {16, 64}) {
          options.model = model;
          options.preset = preset;
          options.attention = {attention};
          options.width = width;
          options.patch = options.model == "vlt_tiny" ? ClassifierOptions{}.patch : 4;
          double least = 0.0, elements = 0.0;
          for (const Family& family : families())
            if (std::ranges::count(family.names(), options.model) > 0) least = family.least_elements(options);
          for (const auto& [name, tensor] : named_tensors(*make_classifier(options)))
            elements += static_cast<double>(tensor.numel());
          EXPECT_LE(least, elements) << model << " " << preset << " " << attention << " " << width;
          if (width == 64) EXPECT_GE(least, 0.75 * elements) << model << " " << preset << " " << attention;
        }
}

TEST(WeightsThatAreNotFinite, AreRefusedByTheirNameInEveryMode) {
  const mhla::testing::TemporaryFolder folder;
  const auto model = make_classifier(testing::small_options());
  const at::Tensor before = model->named_parameters()["head.bias"].detach().clone();
  NamedTensors tensors = named_tensors(*model);
  tensors["head.bias"] = torch::full({5}, 2.0);
  tensors["pos_embed"] = torch::full_like(tensors["pos_embed"], -INFINITY);
  io::save_tensors(folder / "model.safetensors", tensors);
  for (const LoadMode mode : {LoadMode::strict, LoadMode::adapt})
    expect_error([&] { load_weights(*model, folder / "model.safetensors", mode); },
                 {"model.safetensors: tensor \"pos_embed\" holds values that are not finite"});
  EXPECT_TRUE(at::equal(model->named_parameters()["head.bias"], before));
}

}  // namespace
}  // namespace mhla::models
