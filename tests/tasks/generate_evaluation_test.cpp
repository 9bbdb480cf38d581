// `mhla eval generate` on a few small pictures, from inside and from outside.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "io/file.hpp"
#include "io/json.hpp"
#include "io/png.hpp"
#include "models/classifier_file.hpp"
#include "models/classifiers.hpp"
#include "models/generator_file.hpp"
#include "models/generators.hpp"
#include "support/expect_error.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"
#include "tasks/generate/evaluation.hpp"

namespace mhla::tasks {
namespace {

using mhla::testing::Finished;
using mhla::testing::run_mhla;

constexpr int kSide = 8;
const std::vector<std::string> kColours = {"blue", "green", "red"};

class GenerateEvaluationTest : public ::testing::Test {
 protected:
  GenerateEvaluationTest() {
    write_pictures("data/train", 5);
    write_pictures("data/val", 4);
    write_classifier();
    write_generator("generator.safetensors", {"blue", "green", "red"});
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  void write_pictures(const std::string& where, int count) const {
    std::mt19937 random(1 + count);
    for (std::size_t c = 0; c < kColours.size(); ++c)
      for (int i = 0; i < count; ++i) {
        std::vector<std::uint8_t> rgb(kSide * kSide * 3);
        for (std::size_t p = 0; p < rgb.size(); ++p)
          rgb[p] = static_cast<std::uint8_t>(random() % 128 + (2 - p % 3 == c ? 127 : 0));
        io::write_file(folder_ / where / kColours[c] / (std::to_string(i) + ".png"), io::encode_png(rgb, kSide, kSide));
      }
  }

  void write_classifier() const {
    torch::manual_seed(1);
    models::ClassifierOptions options;
    options.image_size = {kSide, kSide};
    options.patch = 4;
    options.classes = 3;
    options.blocks = {1, 1};
    options.width = 8;
    options.depth = 1;
    options.heads = 1;
    models::ClassifierFacts facts{kColours, {}};
    facts.preprocessing.crop_fraction = 1.0;
    models::save_classifier(*models::make_classifier(options), folder_ / "classifier.safetensors", facts);
  }

  // Generators of different orders of the same classes are the same network.
  void write_generator(const std::string& name, const std::vector<std::string>& classes,
                       const std::string& space = "pixels") const {
    torch::manual_seed(2);
    models::GeneratorOptions options;
    options.size = {kSide, kSide};
    options.channels = 3;
    options.classes = 3;
    options.width = 16;
    options.depth = 1;
    options.heads = 1;
    options.blocks = {2, 2};
    const auto model = models::make_generator(options);
    const torch::NoGradGuard no_gradient;
    for (auto& item : model->named_parameters())
      if (item.key() != "pos_embed" && !item.key().ends_with("conv.weight"))
        item.value().add_(torch::randn_like(item.value()) * 0.2);
    at::Tensor table = model->named_parameters()["y_embedder.embedding_table.weight"];
    const at::Tensor rows = table.clone();
    for (std::size_t c = 0; c < classes.size(); ++c)
      table[static_cast<std::int64_t>(c)].copy_(rows[std::ranges::find(kColours, classes[c]) - kColours.begin()]);
    models::GeneratorFacts facts;
    facts.classes = classes;
    facts.space = space;
    models::save_generator(*model, folder_ / name, facts);
  }

  GenerateEvaluationOptions options() const {
    GenerateEvaluationOptions options;
    options.model = path("generator.safetensors");
    options.classifier = path("classifier.safetensors");
    options.data = path("data");
    options.count = 3;
    options.steps = 3;
    return options;
  }

  mhla::testing::TemporaryFolder folder_;
};

void expect_equal_scores(const PictureScores& a, const PictureScores& b) {
  EXPECT_EQ(a.pictures, b.pictures);
  EXPECT_NEAR(a.frechet, b.frechet, 1e-4 * a.frechet);
  EXPECT_EQ(a.manifolds.precision, b.manifolds.precision);
  EXPECT_EQ(a.manifolds.recall, b.manifolds.recall);
  EXPECT_EQ(a.consistency_by_class, b.consistency_by_class);
}

TEST_F(GenerateEvaluationTest, NumbersDoNotDependOnTheBatch) {
  GenerateEvaluationOptions in_batches = options();
  const GenerateEvaluation whole = evaluate_generator(in_batches, at::kCPU);
  EXPECT_EQ(whole.judged.pictures, 9);
  EXPECT_EQ(whole.real_pictures, 12);
  EXPECT_EQ(whole.features, 8);
  ASSERT_TRUE(whole.baseline);
  EXPECT_EQ(whole.baseline->name, "real, train");
  EXPECT_EQ(whole.baseline->pictures, 9);
  ASSERT_TRUE(whole.denoising);
  EXPECT_EQ(whole.denoising->pictures, 12);
  in_batches.batch = 2;
  const GenerateEvaluation parts = evaluate_generator(in_batches, at::kCPU);
  expect_equal_scores(whole.judged, parts.judged);
  expect_equal_scores(*whole.baseline, *parts.baseline);
  EXPECT_NEAR(whole.denoising->all, parts.denoising->all, 1e-5 * whole.denoising->all);
  EXPECT_EQ(whole.examples, parts.examples);
}

TEST_F(GenerateEvaluationTest, TheRealPicturesThemselvesAreAtDistanceZero) {
  GenerateEvaluationOptions same = options();
  same.model.clear();
  same.images = path("data/val");
  same.count = 0;
  const GenerateEvaluation found = evaluate_generator(same, at::kCPU);
  EXPECT_EQ(found.judged.pictures, 12);
  EXPECT_NEAR(found.judged.frechet, 0.0, 1e-9);
  EXPECT_EQ(found.judged.manifolds.precision, 1.0);
  EXPECT_EQ(found.judged.manifolds.recall, 1.0);
  EXPECT_GT(found.baseline->frechet, 1e-3);
  EXPECT_FALSE(found.denoising);
}

TEST_F(GenerateEvaluationTest, ClassesAreMatchedByNameAndPicturesAreThoseOfSample) {
  write_generator("turned.safetensors", {"red", "blue", "green"});
  GenerateEvaluationOptions turned = options();
  turned.model = path("turned.safetensors");
  const GenerateEvaluation found = evaluate_generator(turned, at::kCPU);
  EXPECT_NEAR(found.denoising->all, evaluate_generator(options(), at::kCPU).denoising->all, 1e-6);
  const Finished drawn =
      run_mhla("sample --class blue,green,red --count 3 --steps 3 --cfg-scale 1 --device cpu --model '" + turned.model +
               "' --columns 3 -o '" + path("sheet.png") + "' 2>&1");
  ASSERT_EQ(drawn.exit_code, 0) << drawn.out;
  const io::Image sheet = io::load_image(folder_ / "sheet.png");  // a row a class, two pixels between rows
  ASSERT_EQ(found.examples.size(), 3U);
  for (std::size_t c = 0; c < 3; ++c) {
    const io::Image& row = found.examples[c];
    ASSERT_EQ(row.width, sheet.width);
    const auto begin = sheet.rgb.begin() + static_cast<std::ptrdiff_t>(c) * (kSide + 2) * sheet.width * 3;
    EXPECT_TRUE(std::equal(row.rgb.begin(), row.rgb.end(), begin)) << kColours[c];
  }
}

TEST_F(GenerateEvaluationTest, WhatCannotBeComparedIsRefused) {
  const auto refused = [&](const GenerateEvaluationOptions& wrong, std::initializer_list<std::string_view> mentions) {
    expect_error([&] { evaluate_generator(wrong, at::kCPU); }, mentions);
  };
  GenerateEvaluationOptions wrong = options();
  wrong.model = path("latents.safetensors");
  write_generator("latents.safetensors", kColours, "latents");
  refused(wrong, {"latents.safetensors", "--images"});
  write_generator("latents.safetensors", {});
  refused(wrong, {"latents.safetensors", "does not name its classes"});
  models::LoadedGenerator other = models::load_generator(options().model);
  other.facts.classes = {"blue", "green", "pink"};
  models::save_generator(*other.model, folder_ / "latents.safetensors", other.facts);
  refused(wrong, {"latents.safetensors", "blue, green, pink", "blue, green, red"});
  wrong = options();
  wrong.count = 1;
  refused(wrong, {"--count", "3 pictures", "at least 4"});
  wrong = options();
  wrong.steps = 2000;
  refused(wrong, {"steps is 2000", "1 to 1000"});
  wrong = options();
  wrong.split = "test";
  refused(wrong, {"\"test\"", "train, val"});
  wrong = options();
  std::filesystem::remove_all(folder_ / "data/val/red");
  refused(wrong, {"val", "no pictures of class \"red\""});
}

TEST_F(GenerateEvaluationTest, TheCommandWritesNumbersAndAPage) {
  const std::string judged =
      " --classifier '" + path("classifier.safetensors") + "' --data '" + path("data") + "' --device cpu --threads 1 ";
  const auto run = mhla::testing::run_mhla("eval generate --model '" + path("generator.safetensors") +
                                           "' --count 2 --steps 2 --sampler ddpm --cfg-scale 2 --seed 4" + judged +
                                           "--json '" + path("r.json") + "' --report '" + path("r.html") + "' 2>&1");
  EXPECT_EQ(run.exit_code, 0) << run.out;
  for (const char* part : {"ddpm, 2 steps, guidance 2, seed 4", "drawn", "real, train", "12 real pictures",
                           "denoising error", "note: 6 pictures"})
    EXPECT_NE(run.out.find(part), std::string::npos) << part << "\n" << run.out;
  const auto bytes = io::read_file(folder_ / "r.json");
  const io::Json json = io::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "r.json");
  for (const char* set : {"scores", "baseline"}) {
    EXPECT_EQ(json[set]["pictures"], 6);
    EXPECT_EQ(json[set]["consistency_by_class"].size(), 3U);
    for (const char* number : {"frechet", "precision", "recall", "consistency"})
      EXPECT_GE(json[set][number].get<double>(), 0.0) << number;
  }
  EXPECT_GT(json["denoising"]["mse"].get<double>(), 0.0);
  const auto page = io::read_file(folder_ / "r.html");
  EXPECT_NE(std::string_view(reinterpret_cast<const char*>(page.data()), page.size()).find("green</strong><img"),
            std::string_view::npos);
  for (const std::string& models :
       {std::string(), "--model '" + path("generator.safetensors") + "' --images '" + path("data/val") + "'"}) {
    const auto refused = mhla::testing::run_mhla("eval generate" + judged + models + " 2>&1");
    EXPECT_EQ(refused.exit_code, 2) << refused.out;
    EXPECT_NE(refused.out.find("one of --model"), std::string::npos) << refused.out;
  }
}

}  // namespace
}  // namespace mhla::tasks
