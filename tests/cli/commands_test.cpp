// The commands on models: inspect, classify, bench model.
#include "cli/commands.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "cli/captured.hpp"
#include "io/file.hpp"
#include "io/image.hpp"
#include "io/json.hpp"
#include "io/png.hpp"
#include "models/classifier_file.hpp"
#include "models/classifiers.hpp"
#include "models/small_model.hpp"
#include "support/temporary_folder.hpp"
#include "tensor_io/tensors.hpp"

namespace mhla::cli {
namespace {

class ModelCommands : public ::testing::Test {
 protected:
  using Result = Captured;
  static Result run(const std::vector<std::string>& arguments) { return run_captured(arguments); }

  io::Json json(const std::string& name) {
    std::ifstream stream(folder_ / name);
    return io::Json::parse(stream);
  }

  std::string path(const std::string& name) { return (folder_ / name).string(); }

  std::string photo(const std::string& name, std::int64_t height, std::int64_t width) {
    std::vector<std::uint8_t> rgb(static_cast<std::size_t>(3 * height * width));
    for (std::size_t i = 0; i < rgb.size(); ++i) rgb[i] = static_cast<std::uint8_t>(i * 7 % 251);
    io::write_file(folder_ / name, io::encode_png(rgb, width, height));
    return path(name);
  }

  std::string classifier(const char* attention = "mhla") {
    torch::manual_seed(1);
    models::ClassifierOptions options = models::testing::small_options();
    options.attention = {attention};
    const auto model = models::make_classifier(options);
    models::testing::shake(*model);
    models::ClassifierFacts facts{{"cat", "dog", "owl", "fox", "eel"}, {}};
    facts.preprocessing.crop_fraction = 1.0;
    models::save_classifier(*model, folder_ / "model.safetensors", facts);
    return path("model.safetensors");
  }

  // All values of a tensor are replaced.
  std::string damaged_classifier(const std::string& name, double value) {
    classifier();
    const io::SafeTensors file = io::SafeTensors::load(folder_ / "model.safetensors");
    io::NamedTensors tensors;
    for (const auto& item : file.tensors()) tensors[item.first] = io::to_torch(file, item.first);
    tensors.at(name).view(-1).fill_(value);
    io::save_tensors(folder_ / "damaged.safetensors", tensors, file.metadata());
    return path("damaged.safetensors");
  }

  // A classifier whose blocks read nothing but themselves.
  std::string local_classifier(const models::ClassifierOptions& options) {
    const auto model = models::make_classifier(options);
    const torch::NoGradGuard no_gradient;
    for (const at::Tensor& mixing : model->mixing_matrices()) mixing.copy_(at::eye(mixing.size(0)));
    models::save_classifier(*model, folder_ / "local.safetensors", {});
    return path("local.safetensors");
  }

  // Of the mixing panel that --overlay draws for a token at the top left: how far down its bright block reaches, as a
  // share of the panel; zero without such a panel.
  double bright_share(const std::string& model, const std::string& layer, Result& result) {
    io::write_file(folder_ / "black.png", io::encode_png(std::vector<std::uint8_t>(3 * 32 * 32), 32, 32));
    result = run({"classify", path("black.png"), "--model", model, "--overlay", path("view.png"), "--layer", layer,
                  "--token", "0", "0"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const io::Image view = io::load_image(folder_ / "view.png");
    const std::int64_t panel = view.height + 12, x = 2 * panel + view.height / 10;
    if (x >= view.width) return 0.0;
    const auto green = [&](std::int64_t y) { return view.rgb[static_cast<std::size_t>(3 * (y * view.width + x) + 1)]; };
    std::int64_t bright = 0;
    for (std::int64_t y = 0; y < view.height; ++y) bright += green(y) > 60 ? 1 : 0;
    return static_cast<double>(bright) / static_cast<double>(view.height);
  }

  mhla::testing::TemporaryFolder folder_;
};

TEST_F(ModelCommands, InspectListsTensorsMetadataAndTotals) {
  io::save_tensors(folder_ / "a.safetensors", {{"w", torch::zeros({2, 3})}, {"n", torch::zeros({4}, at::kHalf)}},
                   {{"maker", "me"}});
  const Result result = run({"inspect", path("a.safetensors"), "--json", path("a.json")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"F32", "[2, 3]", "maker: me", "2 tensors, 10 elements (4 F16, 6 F32), 32 bytes"})
    EXPECT_NE(result.out.find(part), std::string::npos) << result.out;
  EXPECT_EQ(json("a.json")[0]["tensors"].size(), 2U);
  EXPECT_EQ(json("a.json")[0]["metadata"]["maker"], "me");
}

TEST_F(ModelCommands, InspectNamesABadFileAndGoesOn) {
  io::save_tensors(folder_ / "good.safetensors", {{"w", torch::zeros({2})}});
  io::write_file(folder_ / "bad.safetensors", std::string_view("not tensors at all"));
  const Result result = run({"inspect", path("bad.safetensors"), path("good.safetensors")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("bad.safetensors"), std::string::npos) << result.err;
  EXPECT_NE(result.out.find("1 tensors, 2 elements"), std::string::npos) << result.out;
}

TEST_F(ModelCommands, ClassifyNamesTheMostProbableClasses) {
  const std::string model = classifier(), image = photo("photo.png", 32, 32);
  const Result result = run({"classify", image, "--model", model, "--top", "5", "--json", path("r.json")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const io::Json top = json("r.json")["images"][0]["top"];
  ASSERT_EQ(top.size(), 5U);
  double sum = 0.0, last = 1.0;
  for (const io::Json& entry : top) {
    sum += entry["probability"].get<double>();
    EXPECT_LE(entry["probability"].get<double>(), last);
    last = entry["probability"].get<double>();
    EXPECT_NE(result.out.find(entry["class"].get<std::string>()), std::string::npos);
  }
  EXPECT_NEAR(sum, 1.0, 1e-9);
  // The same by hand.
  const auto loaded = models::load_classifier(model);
  const io::Image pixels = io::load_image(image);
  at::Tensor input = at::empty({1, 3, 32, 32});
  for (std::int64_t c = 0; c < 3; ++c)
    for (std::int64_t y = 0; y < 32; ++y)
      for (std::int64_t x = 0; x < 32; ++x) {
        const auto channel = static_cast<std::size_t>(c);
        const auto& p = loaded.facts.preprocessing;
        input[0][c][y][x] =
            (pixels.rgb[static_cast<std::size_t>(3 * (32 * y + x) + c)] / 255.0F - p.mean[channel]) / p.std[channel];
      }
  const at::Tensor expected = at::softmax(loaded.model->forward(input)[0], 0);
  EXPECT_NEAR(top[0]["probability"].get<double>(), expected.max().item<double>(), 1e-5);
}

TEST_F(ModelCommands, ClassifyReportsAnUnreadableImageAndGoesOn) {
  io::write_file(folder_ / "text.jpg", std::string_view("no picture"));
  const Result result = run(
      {"classify", path("text.jpg"), photo("photo.png", 50, 40), "--model", classifier(), "--json", path("r.json")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("text.jpg"), std::string::npos) << result.err;
  EXPECT_TRUE(json("r.json")["images"][0].contains("error"));
  EXPECT_TRUE(json("r.json")["images"][1].contains("top"));
}

TEST_F(ModelCommands, WeightsThatAreNotFiniteAreNoAnswer) {
  const std::string image = photo("photo.png", 32, 32);
  std::filesystem::create_directories(folder_ / "data/test/cat");
  std::filesystem::copy(image, folder_ / "data/test/cat/1.png");
  for (const double wrong : {std::nan(""), static_cast<double>(INFINITY)}) {
    const std::string model = damaged_classifier("head.weight", wrong);
    for (const auto& arguments : {std::vector<std::string>{"classify", image, "--model", model},
                                  {"eval", "classify", "--model", model, "--data", path("data"), "--workers", "1"}}) {
      const Result result = run(arguments);
      EXPECT_EQ(result.exit_code, 1) << result.out;
      EXPECT_NE(result.err.find(model + ": tensor \"head.weight\" holds values that are not finite"), std::string::npos)
          << result.err;
      EXPECT_EQ(result.out, "");
    }
  }
}

// Finite weights, but sums of them are not.
TEST_F(ModelCommands, ScoresThatAreNotFiniteAreNoAnswer) {
  const std::string image = photo("photo.png", 32, 32), model = damaged_classifier("head.weight", 3e38);
  std::filesystem::create_directories(folder_ / "data/test/cat");
  std::filesystem::copy(image, folder_ / "data/test/cat/1.png");
  const Result classified = run({"classify", image, "--model", model, "--json", path("r.json")});
  EXPECT_EQ(classified.exit_code, 1) << classified.out;
  EXPECT_NE(classified.err.find(image + ": the model's scores are not finite"), std::string::npos) << classified.err;
  EXPECT_FALSE(json("r.json")["images"][0].contains("top"));
  const Result evaluated = run({"eval", "classify", "--model", model, "--data", path("data"), "--workers", "1"});
  EXPECT_EQ(evaluated.exit_code, 1) << evaluated.out;
  EXPECT_NE(evaluated.err.find(model + ": its scores on"), std::string::npos) << evaluated.err;
}

TEST_F(ModelCommands, AnalyzeNamesAMatrixThatHasNoStatistics) {
  const at::Tensor tokens = torch::rand({16, 4});
  const auto refused = [&](const at::Tensor& mixing, const char* reason) {
    io::save_tensors(folder_ / "in.safetensors", {{"q", tokens}, {"k", tokens}, {"mixing", mixing}});
    const Result result = run(
        {"analyze", "--grid", "4", "4", "--blocks", "2", "2", "--input", path("in.safetensors"), "--out", path("out")});
    EXPECT_EQ(result.exit_code, 1) << result.out;
    EXPECT_NE(result.err.find(reason), std::string::npos) << result.err;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  };
  refused(torch::full({4, 4}, NAN), "tensor \"mixing\" holds values that are not finite");
  refused(torch::zeros({4, 4}), "the attention matrix holds values that are not finite");
  refused(torch::eye(4) - 0.1, "the attention matrix holds negative weights");
}

TEST_F(ModelCommands, ClassifyDrawsWhereItLooked) {
  for (const char* attention : {"mhla", "softmax"}) {
    const Result result = run({"classify", photo("photo.png", 32, 32), "--model", classifier(attention), "--overlay",
                               path("view.png"), "--token", "1", "2", "--layer", "0"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const io::Image view = io::load_image(folder_ / "view.png");
    const std::int64_t panels = attention == std::string("mhla") ? 3 : 2;
    EXPECT_EQ(view.height, 384);
    EXPECT_EQ(view.width, panels * 384 + (panels - 1) * 12);
    // The marked token's frame begins at its corner, in every panel.
    const std::int64_t y = 1 * 384 / 8, x = 2 * 384 / 8;
    for (std::int64_t panel = 0; panel < panels; ++panel)
      EXPECT_EQ(view.rgb[static_cast<std::size_t>(3 * (y * view.width + x + panel * 396))], 255);
  }
}

TEST_F(ModelCommands, ClassifyDrawsTheBlocksOfTheLayer) {
  models::ClassifierOptions options = models::testing::small_options();
  options.model = "vlt_tiny";
  options.patch = models::ClassifierOptions{}.patch;
  options.width = 8;
  options.depth = 1;
  options.heads = 1;
  std::string model = local_classifier(options);
  Result result;
  EXPECT_NEAR(bright_share(model, "0", result), 1.0 / 4, 0.02);  // four blocks an axis in the first stage
  EXPECT_NE(result.out.find("attention of layer 0 over it and its mixing"), std::string::npos) << result.out;
  EXPECT_NEAR(bright_share(model, "1", result), 1.0 / 2, 0.02);
  EXPECT_EQ(bright_share(model, "2", result), 0.0);  // softmax
  EXPECT_NE(result.out.find("The image and attention of layer 2 over it:"), std::string::npos) << result.out;
  options.image_size = {30, 30};  // 8 tokens of 4 pixels, the last one half empty
  options.mixing_frozen = true;
  options.mixing_init = "uniform";
  model = local_classifier(options);
  bright_share(model, "0", result);
  EXPECT_EQ(io::load_image(folder_ / "view.png").height % 32, 0);
  EXPECT_NE(result.out.find("its mixing"), std::string::npos) << result.out;
}

TEST_F(ModelCommands, ClassifyDrawsBlocksOfDifferentSizes) {
  models::ClassifierOptions options = models::testing::small_options();
  options.image_size = {28, 28};  // 7 tokens an axis, in blocks of 4 and 3
  Result result;
  EXPECT_NEAR(bright_share(local_classifier(options), "0", result), 4.0 / 7, 0.02);
}

TEST_F(ModelCommands, ClassifySaysWhichArgumentIsWrong) {
  const std::string model = classifier(), image = photo("photo.png", 32, 32);
  const auto expect = [&](const char* part, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"classify", "--model", model});
    const Result result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << part;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  };
  expect("--overlay is for one image", {image, image, "--overlay", path("view.png")});
  expect("--layer is 2", {image, "--overlay", path("view.png"), "--layer", "2"});
  expect("--token is 8 0", {image, "--overlay", path("view.png"), "--token", "8", "0"});
  expect("--top", {image, "--top", "0"});
  EXPECT_EQ(run({"classify", image, "--model", path("none.safetensors")}).exit_code, 1);
}

TEST_F(ModelCommands, BenchModelComparesAttentionsInOneRun) {
  const Result result = run({"bench", "model", "--quick", "--json", path("r.json"), "--charts", path("charts")});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  const io::Json rows = json("r.json");
  ASSERT_EQ(rows.size(), 6U);
  for (const io::Json& row : rows) {
    EXPECT_GT(row["images_per_second"].get<double>(), 0.0);
    EXPECT_LT(row["rel_err"].get<double>(), 1e-5);
    EXPECT_EQ(row["tokens"], 16);
    EXPECT_EQ(row["blocks"], row["attention"] == "mhla" ? 16 : 0);
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ / "charts" / "throughput_train.svg"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "charts" / "memory_infer.svg"));
}

TEST_F(ModelCommands, BenchModelTimesGeneratorsOnLatentsBesideClassifiers) {
  const Result result = run({"bench", "model", "--quick", "--model", "dit_s2,deit_tiny", "--blocks", "2", "--json",
                             path("r.json"), "--charts", path("charts")});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  const io::Json rows = json("r.json");
  ASSERT_EQ(rows.size(), 12U);
  for (const io::Json& row : rows) {
    EXPECT_EQ(row["height"], 64);
    EXPECT_EQ(row["tokens"], 16);
    EXPECT_EQ(row["blocks"], row["attention"] == "mhla" ? 4 : 0);
    EXPECT_GT(row["images_per_second"].get<double>(), 0.0);
    EXPECT_GT(row["peak_bytes"].get<double>(), 0.0);
    EXPECT_GT(row["rel_err"].get<double>(), 0.0);
    EXPECT_LT(row["rel_err"].get<double>(), 1e-5);
  }
  EXPECT_EQ(rows[0]["model"], "dit_s2");
  EXPECT_EQ(rows[6]["model"], "deit_tiny");
  EXPECT_TRUE(std::filesystem::exists(folder_ / "charts" / "dit_s2" / "throughput_train.svg"));
  const Result wrong = run({"bench", "model", "--model", "dit_s4", "--size", "256,264"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("--size is 264; with dit_s4 it must be a multiple of 32"), std::string::npos) << wrong.err;
}

}  // namespace
}  // namespace mhla::cli
