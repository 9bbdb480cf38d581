// `mhla sample` as a user runs it, with a model that is quick to draw with.
#include <gtest/gtest.h>

#include <fstream>

#include "cli/captured.hpp"
#include "io/apng.hpp"
#include "io/file.hpp"
#include "io/image.hpp"
#include "io/json.hpp"
#include "io/png.hpp"
#include "models/classifier_file.hpp"
#include "models/classifiers.hpp"
#include "models/generator_file.hpp"
#include "models/small_generator.hpp"
#include "models/small_model.hpp"
#include "models/small_sd_vae.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::cli {
namespace {

namespace fs = std::filesystem;
using mhla::testing::run_command;

class SampleCommands : public ::testing::Test {
 protected:
  SampleCommands() {
    models::GeneratorFacts facts{.classes = {"cat", "dog", "wild boar", "owl"}};
    models::save_generator(*models::testing::small_generator(), folder_ / "model.safetensors", facts);
    facts.space = "latents";
    models::save_generator(*models::testing::small_generator(4), folder_ / "latents.safetensors", facts);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::vector<std::string> command(const std::vector<std::string>& arguments) const {
    std::vector<std::string> all = {"sample", "--model", path("model.safetensors"), "--device", "cpu"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    if (std::ranges::find(arguments, "--steps") == arguments.end()) all.insert(all.end(), {"--steps", "3"});
    return all;
  }

  Captured sample(const std::vector<std::string>& arguments) const {
    Captured result = run_captured(command(arguments));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }

  std::string refusal(const std::vector<std::string>& arguments, int exit_code = 2) const {
    const Captured result = run_captured(command(arguments));
    EXPECT_EQ(result.exit_code, exit_code) << result.out << result.err;
    return result.err;
  }

  io::Image image(const std::string& name) const { return io::load_image(folder_ / name); }

  // A rectangle of a sheet.
  static io::Image part(const io::Image& sheet, std::int64_t top, std::int64_t left, std::int64_t height,
                        std::int64_t width) {
    io::Image result = io::make_image(height, width);
    for (std::int64_t y = 0; y < height; ++y)
      std::copy_n(sheet.rgb.begin() + 3 * ((top + y) * sheet.width + left), 3 * width,
                  result.rgb.begin() + 3 * y * width);
    return result;
  }

  io::Json parameters(const std::string& name) const {
    io::PngTexts texts;
    io::decode_png(io::read_file(folder_ / name), name, &texts);
    for (const auto& [keyword, text] : texts)
      if (keyword == "mhla.sample") return io::parse_json(text, name);
    return {};
  }

  mhla::testing::TemporaryFolder folder_;
};

TEST_F(SampleCommands, APictureIsTheSameOnAnyNumberOfThreadsAloneAndAmongOthers) {
  for (const char* sampler : {"ddim", "ddpm", "dpm++"}) {
    sample({"--class", "dog", "--count", "4", "--threads", "2", "--sampler", sampler, "--separate", path("two")});
    sample({"--class", "dog", "--count", "4", "--threads", "1", "--sampler", sampler, "--separate", path("one")});
    sample({"--class", "1", "--count", "1", "--first", "3", "--sampler", sampler, "--separate", path("alone")});
    sample({"--count", "4", "--batch", "1", "--sampler", sampler, "--separate", path("all")});
    const io::Image expected = image("two/dog_000003.png");
    for (const char* run : {"one", "alone", "all"}) EXPECT_EQ(image(std::string(run) + "/dog_000003.png"), expected);
    EXPECT_NE(image("all/cat_000003.png"), expected);
    EXPECT_NE(image("two/dog_000002.png"), expected);
  }
  EXPECT_TRUE(fs::exists(folder_ / "all/wild_boar_000000.png"));
}

TEST_F(SampleCommands, TheSheetHasARowForEachClass) {
  const Captured result =
      sample({"--class", "owl,cat", "--count", "3", "-o", path("sheet.png"), "--separate", path("each")});
  EXPECT_NE(result.out.find("6 pictures of 8 x 8 pixels"), std::string::npos) << result.out;
  const io::Image sheet = image("sheet.png");
  EXPECT_EQ(sheet.height, 2 * 8 + 2);
  EXPECT_EQ(sheet.width, 3 * 8 + 2 * 2);
  EXPECT_EQ(part(sheet, 0, 10, 8, 8), image("each/owl_000001.png"));
  EXPECT_EQ(part(sheet, 10, 20, 8, 8), image("each/cat_000002.png"));
  EXPECT_EQ(part(sheet, 8, 0, 2, 28).rgb, std::vector<std::uint8_t>(3 * 2 * 28, 255));
  sample({"--class", "owl,cat", "--count", "3", "--columns", "4", "-o", path("sheet.png")});
  EXPECT_EQ(image("sheet.png").width, 4 * 8 + 3 * 2);
  sample({"--class", "owl", "--count", "7", "-o", path("sheet.png")});
  EXPECT_EQ(image("sheet.png").width, 3 * 8 + 2 * 2);
  sample({"--class", "owl", "--count", "1", "--size", "4", "12", "-o", path("sheet.png")});
  EXPECT_EQ(image("sheet.png").height, 4);
  EXPECT_EQ(image("sheet.png").width, 12);
}

TEST_F(SampleCommands, TheCommandInAPictureDrawsItAgain) {
  sample({"--class",
          "wild boar,0",
          "--count",
          "2",
          "--first",
          "5",
          "--seed",
          "18446744073709551615",
          "--cfg-scale",
          "2.75",
          "--cfg-interval",
          "0.1",
          "0.9",
          "--sampler",
          "dpm++",
          "--size",
          "12",
          "8",
          "-o",
          path("it's one.png"),
          "--separate",
          path("each")});
  for (const char* name : {"it's one.png", "each/wild_boar_000006.png"}) {
    const auto bytes = io::read_file(folder_ / name);
    const auto command = parameters(name)["command"].get<std::string>();
    ASSERT_TRUE(command.starts_with("mhla sample ")) << command;
    fs::remove(folder_ / name);
    const auto again = run_command("'" + std::string(MHLA_PROGRAM) + "'" + command.substr(4) + " 2>&1");
    ASSERT_EQ(again.exit_code, 0) << again.out;
    EXPECT_EQ(io::read_file(folder_ / name), bytes) << command;
  }
}

TEST_F(SampleCommands, InspectShowsTheParametersOfAPicture) {
  sample({"--class", "owl", "--count", "1", "--seed", "12", "-o", path("a.png"), "--animate", path("moving.png")});
  const io::Json stored = parameters("a.png");
  EXPECT_EQ(stored["classes"], io::Json({"owl"}));
  EXPECT_EQ(stored["seed"], 12);
  EXPECT_EQ(stored["steps"], 3);
  EXPECT_EQ(stored["sampler"], "ddim");
  EXPECT_EQ(stored["cfg_scale"], 1.5);
  EXPECT_EQ(stored["model"], path("model.safetensors"));
  const Captured shown = run_captured({"inspect", path("a.png"), path("moving.png"), "--json", path("a.json")});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  for (const char* line : {"PNG of 8 x 8 pixels\n", "  seed: 12\n", "  classes: [\"owl\"]\n", "  command: mhla sample",
                           "PNG of 8 x 8 pixels, an animation of 3 frames\n"})
    EXPECT_NE(shown.out.find(line), std::string::npos) << line << shown.out;
  std::ifstream stream(folder_ / "a.json");
  const io::Json json = io::Json::parse(stream);
  EXPECT_EQ(json[0]["width"], 8);
  EXPECT_EQ(io::parse_json(json[0]["metadata"]["mhla.sample"].get<std::string>(), "metadata"), stored);
}

TEST_F(SampleCommands, NumpyReadsTheArchive) {
  sample({"--class", "dog,owl", "--count", "2", "--npz", path("a.npz"), "--separate", path("each")});
  EXPECT_FALSE(fs::exists("out/sample.png"));
  const std::string script =
      "import sys, numpy as np; z = np.load(sys.argv[1]); a = z[\"arr_0\"];"
      "assert a.shape == (4, 8, 8, 3) and a.dtype == np.uint8, a.shape;"
      "assert z[\"arr_1\"].tolist() == [1, 1, 3, 3] and z[\"arr_1\"].dtype == np.int64; a.tofile(sys.argv[2])";
  const auto run =
      run_command(std::string(MHLA_PYTHON) + " -c '" + script + "' '" + path("a.npz") + "' '" + path("raw") + "' 2>&1");
  ASSERT_EQ(run.exit_code, 0) << run.out;
  const auto raw = io::read_file(folder_ / "raw");
  std::size_t at = 0;
  for (const char* name : {"dog_000000", "dog_000001", "owl_000000", "owl_000001"}) {
    const io::Image picture = image(std::string("each/") + name + ".png");
    const auto bytes = std::as_bytes(std::span(picture.rgb));
    EXPECT_TRUE(std::ranges::equal(bytes, std::span(raw).subspan(at, bytes.size()))) << name;
    at += bytes.size();
  }
}

TEST_F(SampleCommands, TheAnimationEndsWithThePictures) {
  sample({"--class", "all", "--count", "2", "--steps", "5", "-o", path("a.png"), "--animate", path("moving.png")});
  const auto bytes = io::read_file(folder_ / "moving.png");
  EXPECT_EQ(io::frames_of_png(bytes), 5);
  EXPECT_EQ(image("moving.png"), image("a.png"));
}

TEST_F(SampleCommands, LatentsBecomePicturesThroughTheAutoencoder) {
  models::testing::save_small_sd_vae(folder_ / "vae");
  const std::vector<std::string> latents = {"--model", path("latents.safetensors"), "--class", "cat", "--count", "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), latents.begin(), latents.end());
    more.insert(more.begin(), {"sample", "--device", "cpu", "--steps", "2"});
    return run_captured(more);
  };
  const Captured drawn = with({"--vae", path("vae"), "-o", path("a.png"), "--animate", path("moving.png")});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_EQ(image("a.png").height, 16);
  EXPECT_EQ(with({"--vae", path("vae"), "--size", "8", "24", "-o", path("a.png")}).exit_code, 0);
  EXPECT_EQ(image("a.png").width, 2 * 24 + 2);
  const Captured odd = with({"--vae", path("vae"), "--size", "10", "24", "-o", path("a.png")});
  EXPECT_NE(odd.err.find("--size is 10 24; height and width must be multiples of 4"), std::string::npos) << odd.err;
  const Captured without = with({"-o", path("a.png")});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_NE(without.err.find("--vae is needed, since the model draws latents"), std::string::npos) << without.err;
  EXPECT_NE(refusal({"--vae", path("vae"), "-o", path("a.png")}).find("this one draws pixels"), std::string::npos);
}

TEST_F(SampleCommands, ImpossibleRequestsSayWhatIsAllowed) {
  const auto expect = [&](const char* part, std::vector<std::string> arguments, int exit_code = 2) {
    arguments.insert(arguments.end(), {"-o", path("a.png")});
    const std::string message = refusal(arguments, exit_code);
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_FALSE(fs::exists(folder_ / "a.png"));
  };
  expect("--class is \"cow\"; it may be all, none, a number from 0 to 3, or a name: cat, dog, wild boar, owl",
         {"--class", "cow"});
  expect("--class is \"4\"; it may be all, none, a number from 0 to 3", {"--class", "4"});
  expect("--steps: it is \"0\"; it must be an integer of 1 or more", {"--steps", "0"});
  expect("--steps is 1001; it may be 1 to 1000", {"--steps", "1001"});
  expect("--steps is 1; it may be 2 to 1000", {"--steps", "1", "--sampler", "ddpm"});
  expect("--count: it is \"0\"; it must be an integer from 1 to", {"--count", "0"});
  expect("--size is 9 8; height and width must be multiples of 2", {"--size", "9", "8"});
  expect("--cfg-interval is 0.7 0.3; the first must not be above the second", {"--cfg-interval", "0.7", "0.3"});
  expect("--cfg-scale: it is \"-1\"", {"--cfg-scale", "-1"});
  expect("--out: 32 rows of 32000 pictures have 319998 x 318 pixels; a side may have 32768",
         {"--class", "cat", "--count", "1000000", "--columns", "32000"});
  expect("--animate: 1000 steps of 40000 pictures take 7.68 GB; at most 2",
         {"--class", "cat", "--count", "40000", "--steps", "1000", "--animate", path("b.png")});
  expect("which another option names too", {"--animate", path("a.png")});
  io::write_file(folder_ / "plain", "text");
  expect("plain/below: the folder cannot be made: Not a directory", {"--separate", path("plain/below")}, 1);
  expect("plain: the folder cannot be made: Not a directory", {"--npz", path("plain/a.npz")}, 1);
  const Captured missing = run_captured({"sample", "--model", path("none.safetensors"), "-o", path("a.png")});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_NE(missing.err.find("none.safetensors: there is no such file"), std::string::npos) << missing.err;
}

TEST_F(SampleCommands, AnArchiveTooLargeForTheDiskIsRefusedBeforeDrawing) {
  const std::string message = refusal({"--count", "100000000", "--size", "2048", "2048", "--npz", path("a.npz")});
  EXPECT_NE(message.find("--npz: 400,000,000 pictures need 5,033,168 GB, but the disk of " + path("a.npz") + " has "),
            std::string::npos)
      << message;
  EXPECT_NE(message.find(" GB free, for "), std::string::npos) << message;
  EXPECT_FALSE(fs::exists(folder_ / "a.npz"));
}

TEST_F(SampleCommands, AClassifierIsNoGenerator) {
  const auto classifier = models::make_classifier(models::testing::small_options());
  models::save_classifier(*classifier, folder_ / "classifier.safetensors", {});
  const Captured result = run_captured({"sample", "--model", path("classifier.safetensors"), "-o", path("a.png")});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("classifier.safetensors: it holds a model of `mhla train classify`"), std::string::npos)
      << result.err;
}

TEST_F(SampleCommands, WeightsThatGiveNoPictureAreNamed) {
  const auto model = models::testing::small_generator();
  {
    const torch::NoGradGuard no_gradient;
    for (auto& item : model->named_parameters())
      if (item.key() == "final_layer.linear.weight") item.value().fill_(3e38);
  }
  models::save_generator(*model, folder_ / "model.safetensors", {});
  EXPECT_NE(refusal({"-o", path("a.png")}, 1).find("values that are not finite"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "a.png"));
}

// What is in the folder of the outputs after the command was stopped by a signal while it drew.
TEST_F(SampleCommands, StoppedHalfWayItLeavesTheOldFiles) {
  std::string line = "'" + std::string(MHLA_PROGRAM) + "'";
  for (const std::string& word : command({"--class", "cat", "--count", "1000000", "--npz", path("out/a.npz")}))
    line += " '" + word + "'";
  for (const char* signal : {"INT", "TERM", "KILL"}) {
    io::write_file(folder_ / "out/a.npz", "old");
    const std::string script = line + " >/dev/null 2>'" + path("said") + "' & pid=$!; for i in $(seq 600); do " +
                               "ls '" + path("out") + "' | grep -q unfinished && break; sleep 0.1; done; sleep 0.3; " +
                               "kill -" + signal + " $pid; wait $pid; echo ended $?; ls '" + path("out") + "'";
    const auto run = run_command("bash -c \"$(cat <<'END'\n" + script + "\nEND\n)\" 2>/dev/null");
    const auto kept = io::read_file(folder_ / "out/a.npz");
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(kept.data()), kept.size()), "old") << signal;
    if (std::string(signal) == "KILL") continue;
    EXPECT_EQ(run.out, "ended 1\na.npz\n") << signal;
    const auto said = io::read_file(folder_ / "said");
    EXPECT_NE(std::string(reinterpret_cast<const char*>(said.data()), said.size()).find("interrupted"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace mhla::cli
