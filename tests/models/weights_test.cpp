// Weights survive a file; what does not fit is listed as a whole; what nearly fits is adapted.
#include "models/base/weights.hpp"

#include <gtest/gtest.h>

#include "models/classifier_file.hpp"
#include "models/classifiers.hpp"
#include "models/small_model.hpp"
#include "support/temporary_folder.hpp"
#include "tensor_io/tensors.hpp"

namespace mhla::models {
namespace {

using testing::images;
using testing::relative_error;
using testing::small_options;

class Weights : public ::testing::Test {
 protected:
  std::shared_ptr<Classifier> model(const ClassifierOptions& options) {
    auto made = make_classifier(options);
    testing::shake(*made);
    made->eval();
    return made;
  }

  std::string strict_error(Model& model) {
    try {
      load_weights(model, file_, LoadMode::strict);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  mhla::testing::TemporaryFolder folder_;
  std::filesystem::path file_ = folder_ / "model.safetensors";
};

TEST_F(Weights, AFileGivesTheSameModel) {
  const auto saved = model(small_options()), loaded = model(small_options());
  save_weights(*saved, file_);
  const LoadReport report = load_weights(*loaded, file_, LoadMode::strict);
  EXPECT_EQ(report.loaded, static_cast<std::int64_t>(saved->parameters().size()));
  EXPECT_EQ(report.text(), "");
  EXPECT_TRUE(at::equal(loaded->forward(images(2, 32, 32)), saved->forward(images(2, 32, 32))));
}

TEST_F(Weights, HalfPrecisionIsStoredAndRead) {
  const auto saved = model(small_options()), loaded = model(small_options());
  save_weights(*saved, file_, {{"note", "half"}, {"numbers", {1, 2}}}, at::kHalf);
  const auto file = io::SafeTensors::load(file_);
  EXPECT_EQ(file.at("head.weight").dtype, "F16");
  EXPECT_EQ(file.metadata().at("note"), "half");
  EXPECT_EQ(file.metadata().at("numbers"), "[1,2]");
  load_weights(*loaded, file_, LoadMode::strict);
  EXPECT_EQ(loaded->named_parameters()["head.weight"].scalar_type(), at::kFloat);
  EXPECT_LT(relative_error(loaded->forward(images(2, 32, 32)), saved->forward(images(2, 32, 32))), 5e-3);
}

TEST_F(Weights, StrictLoadingListsEverythingThatDoesNotFit) {
  const auto whole = model(small_options());
  NamedTensors tensors = named_tensors(*whole);
  tensors.erase("fc_norm.bias");
  tensors.erase("blocks.0.norm1.weight");
  tensors["stranger"] = torch::ones({3});
  tensors["head.weight"] = torch::ones({7, 24});
  tensors["head.bias"] = torch::ones({5}, at::kLong);
  io::save_tensors(file_, tensors);
  const auto target = model(small_options());
  const at::Tensor before = target->named_parameters()["pos_embed"].clone();
  const std::string error = strict_error(*target);
  for (const char* part : {"model.safetensors", "missing in the file:\n  blocks.0.norm1.weight\n  fc_norm.bias",
                           "not in the model:\n  stranger", "head.weight: [7, 24] in the file, [5, 24] in the model",
                           "head.bias: Long in the file, Float in the model"})
    EXPECT_NE(error.find(part), std::string::npos) << error;
  EXPECT_TRUE(at::equal(target->named_parameters()["pos_embed"], before)) << "a failed load changed the model";
}

TEST_F(Weights, ASoftmaxCheckpointBecomesAnMhlaModel) {
  ClassifierOptions softmax = small_options();
  softmax.preset = "authors";
  softmax.attention = {"softmax"};
  const auto source = model(softmax);
  save_weights(*source, file_);
  const auto target = make_classifier(small_options());
  const at::Tensor mixing = target->mixing_matrices()[0].clone();
  const LoadReport report = load_weights(*target, file_, LoadMode::adapt);
  const auto from = source->named_parameters(), to = target->named_parameters();
  EXPECT_TRUE(at::equal(to["blocks.1.attn.to_qkv.weight"], from["blocks.1.attn.qkv.weight"]));
  EXPECT_TRUE(at::equal(to["blocks.1.attn.to_out.0.weight"], from["blocks.1.attn.proj.weight"]));
  EXPECT_TRUE(at::equal(to["blocks.0.mlp.fc1.weight"], from["blocks.0.mlp.fc1.weight"]));
  EXPECT_TRUE(at::equal(to["fc_norm.weight"], from["norm.weight"]));
  EXPECT_TRUE(at::equal(to["pos_embed"], from["pos_embed"].slice(1, 1)));
  EXPECT_TRUE(at::equal(target->mixing_matrices()[0], mixing)) << "the mixing stays as it was initialised";
  const at::Tensor bias = from["blocks.0.attn.proj.bias"] +
                          from["blocks.0.attn.proj.weight"].mv(from["blocks.0.attn.qkv.bias"].slice(0, 48));
  EXPECT_LT(relative_error(to["blocks.0.attn.to_out.0.bias"], bias), 1e-6);
  EXPECT_EQ(report.extra, std::vector<std::string>{"cls_token"});
  EXPECT_TRUE(report.misshapen.empty()) << report.text();
  EXPECT_EQ(report.missing.size(), 2U * 5U) << report.text();  // q_norm, k_norm, lepe, mixing of each layer
}

// Its bias of q, k and v, its projection and its positions have any shape a file can give them.
TEST_F(Weights, ACheckpointOfOddShapesIsTakenAsFarAsItFits) {
  ClassifierOptions softmax = small_options();
  softmax.preset = "authors";
  softmax.attention = {"softmax"};
  const auto source = model(softmax), target = model(small_options());
  const std::vector<std::pair<const char*, std::vector<std::int64_t>>> changes = {
      {"attn.qkv.bias", {}},         {"attn.qkv.bias", {0}},       {"attn.qkv.bias", {1}},   {"attn.qkv.bias", {4}},
      {"attn.qkv.bias", {3, 24}},    {"attn.proj.weight", {24}},   {"attn.proj.weight", {}}, {"attn.proj.bias", {7}},
      {"attn.proj.weight", {24, 0}}, {"attn.proj.weight", {7, 24}}};
  for (const auto& [name, shape] : changes) {
    NamedTensors tensors = named_tensors(*source);
    tensors[std::string("blocks.0.") + name] = torch::ones(shape);
    tensors["pos_embed"] = torch::ones({1, 65, 0});
    io::save_tensors(file_, tensors);
    const LoadReport report = load_weights(*target, file_, LoadMode::adapt);
    EXPECT_FALSE(report.extra.empty() && report.misshapen.empty()) << name;
    EXPECT_GT(report.loaded, 10) << name;
  }
}

TEST_F(Weights, PositionsAndMixingAreResized) {
  ClassifierOptions small = small_options(), large = small_options();
  large.image_size = {48, 64};
  large.blocks = {3, 4};
  const auto source = model(small);
  save_classifier(*source, file_, {});
  const auto target = make_classifier(large);
  const LoadReport report = load_weights(*target, file_, LoadMode::adapt);
  EXPECT_EQ(report.adapted.size(), 3U) << report.text();
  EXPECT_TRUE(report.missing.empty() && report.extra.empty() && report.misshapen.empty()) << report.text();
  const at::Tensor mixing = target->mixing_matrices()[0], smaller = source->mixing_matrices()[0];
  for (const auto& [corner, smaller_corner] : {std::pair{0, 0}, {3, 1}, {8, 2}, {11, 3}})
    EXPECT_NEAR(mixing[corner].sum().item<double>(), smaller[smaller_corner].sum().item<double>(), 1e-5) << corner;
}

TEST_F(Weights, AHeadOfOtherClassesIsLeftAsItWas) {
  save_weights(*model(small_options()), file_);
  ClassifierOptions other = small_options();
  other.classes = 9;
  const auto target = make_classifier(other);
  const at::Tensor before = target->named_parameters()["head.weight"].clone();
  const LoadReport report = load_weights(*target, file_, LoadMode::adapt);
  EXPECT_EQ(report.misshapen.size(), 2U) << report.text();
  EXPECT_TRUE(at::equal(target->named_parameters()["head.weight"], before));
}

TEST_F(Weights, AClassifierFileHoldsAllThatIsNeeded) {
  const auto saved = model(small_options());
  const ClassifierFacts facts{{"a", "b", "c", "d", "e"}, {{0.1F, 0.2F, 0.3F}, {0.4F, 0.5F, 0.6F}, 0.9}};
  save_classifier(*saved, file_, facts, at::kFloat, {{"trained", "never"}});
  const LoadedClassifier loaded = load_classifier(file_);
  EXPECT_EQ(loaded.model->options, saved->options);
  EXPECT_EQ(loaded.facts.classes, facts.classes);
  EXPECT_EQ(loaded.facts.preprocessing.std, facts.preprocessing.std);
  EXPECT_EQ(loaded.facts.preprocessing.crop_fraction, 0.9);
  EXPECT_FALSE(loaded.model->is_training());
  EXPECT_TRUE(at::equal(loaded.model->forward(images(2, 32, 32)), saved->forward(images(2, 32, 32))));
}

TEST_F(Weights, AClassifierFileWithoutItsConfigIsRefused) {
  save_weights(*model(small_options()), file_);
  EXPECT_THROW(load_classifier(file_), Error);
  save_weights(*model(small_options()), file_, {{"mhla.config", R"({"patch": "x"})"}});
  try {
    load_classifier(file_);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("model.safetensors: metadata \"mhla.config\": classifier option \"patch\""), std::string::npos)
        << text;
  }
}

TEST_F(Weights, AFileThatSaysPresetReferenceLoadsAsAuthors) {
  ClassifierOptions options = small_options();
  options.preset = "authors";
  const auto saved = model(options);
  io::Json config = saved->options;
  config["preset"] = "reference";
  save_weights(*saved, file_, {{"mhla.config", config}});
  const LoadedClassifier loaded = load_classifier(file_);
  EXPECT_EQ(loaded.model->options, options);
  EXPECT_TRUE(at::equal(loaded.model->forward(images(2, 32, 32)), saved->forward(images(2, 32, 32))));
}

TEST_F(Weights, NonsenseInAClassifierFileIsRefusedByName) {
  const auto saved = model(small_options());
  const auto refused = [&](const char* key, const io::Json& value, const std::string& reason) {
    io::Json metadata = {{"mhla.config", saved->options}};
    metadata[key] = value;
    save_weights(*saved, file_, metadata);
    try {
      load_classifier(file_);
      ADD_FAILURE() << key << " " << value;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  };
  const auto config = [&](const char* option, const io::Json& value) {
    io::Json changed = saved->options;
    changed[option] = value;
    return changed;
  };
  const auto pixels = [](const io::Json& std, double crop) {
    return io::Json{{"mean", {0.5, 0.5, 0.5}}, {"std", std}, {"crop_fraction", crop}};
  };
  refused("mhla.config", config("patch", 0), "patch is 0; it may be 1 to 4096");
  refused("mhla.config", config("image_size", io::Json::array()), "image_size is []");
  refused("mhla.config", config("width", 1000000000000), "width is 1000000000000");
  refused("mhla.config", config("depth", 100000000), "depth is 100000000");
  refused("mhla.preprocessing", pixels({0.0, 1.0, 1.0}, 1.0), "positive std");
  refused("mhla.preprocessing", pixels({1.0, 1.0, 1.0}, 1e-6), "crop_fraction of 0.01 to 1");
}

}  // namespace
}  // namespace mhla::models
