// `mhla train classify` and `mhla eval classify` from outside, on a small set of generated images.
#include <gtest/gtest.h>

#include <cmath>

#include "io/file.hpp"
#include "io/json.hpp"
#include "io/safetensors.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"
#include "tasks/training_runs.hpp"
#include "tensor_io/tensors.hpp"
#include "train/checkpoint.hpp"
#include "train/run_log.hpp"

namespace mhla::train {
namespace {

using mhla::testing::Finished;
using mhla::testing::newest;
using mhla::testing::quoted;
using mhla::testing::read_json;
using mhla::testing::TemporaryFolder;
using mhla::testing::write_images;

Finished run(const std::string& command) { return mhla::testing::run_command(command + " 2>&1"); }

std::string train_command(const std::filesystem::path& images, const std::filesystem::path& out,
                          const std::string& more =
                              " --drop-path 0.1 --ema 0.9 --lr 5e-3 --log-every 3"
                              " --checkpoint-every 4") {
  return std::string("'") + MHLA_PROGRAM + "' train classify --data " + quoted(images) + " --out " + quoted(out) +
         " --width 16 --depth 2 --heads 2 --image-size 16 --patch 4 --blocks 2 2 --batch 14 --epochs 6"
         " --device cpu --threads 1 --workers 1" +
         more;
}

TEST(Classify, TrainsTestsAndEvaluatesTheSame) {
  const TemporaryFolder folder;
  write_images(folder / "images");
  const Finished trained =
      run(train_command(folder / "images", folder / "out") + " --half --json " + quoted(folder / "result.json"));
  ASSERT_EQ(trained.exit_code, 0) << trained.out;
  const io::Json result = read_json(folder / "result.json");
  EXPECT_TRUE(result.at("finished").get<bool>());
  EXPECT_EQ(result.at("steps"), 18);
  const double accuracy = result.at("results").at("test/top1").get<double>();
  EXPECT_GE(accuracy, 0.6) << trained.out;
  for (const char* name : {"model.safetensors", "metrics.jsonl", "summary.csv", "report.html", "events", "checkpoints"})
    EXPECT_TRUE(std::filesystem::exists(folder / "out" / name)) << name;

  const io::SafeTensors weights = io::SafeTensors::load(folder / "out/model.safetensors");
  EXPECT_EQ(weights.at("head.weight").dtype, "F16");
  EXPECT_EQ(weights.metadata().at("mhla.classes"), R"(["class0","class1","class2"])");
  EXPECT_NE(weights.metadata().at("mhla.command").find("train classify --data"), std::string::npos);

  const Finished evaluated = run(std::string("'") + MHLA_PROGRAM + "' eval classify --device cpu --workers 1 --model " +
                                 quoted(folder / "out/model.safetensors") + " --data " + quoted(folder / "images") +
                                 " --attention 2 --out " + quoted(folder / "evaluation"));
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.out;
  EXPECT_NE(evaluated.out.find("top-1"), std::string::npos);
  const io::Json evaluation = read_json(folder / "evaluation/evaluation.json");
  EXPECT_EQ(evaluation.at("top1").get<double>(), accuracy);
  EXPECT_EQ(evaluation.at("images"), 18);
  EXPECT_EQ(evaluation.at("confusion").size(), 3U);
  std::int64_t right = 0;
  for (std::size_t i = 0; i < 3; ++i) right += evaluation.at("confusion")[i][i].get<std::int64_t>();
  EXPECT_DOUBLE_EQ(static_cast<double>(right) / 18.0, accuracy);
  ASSERT_EQ(evaluation.at("attention").size(), 2U);
  EXPECT_GT(evaluation.at("attention")[0].at("rank").get<double>(), 1.0);
  EXPECT_TRUE(std::filesystem::exists(folder / "evaluation/confusion.png"));
}

TEST(Classify, GoesOnAfterKillNineBitForBit) {
  const TemporaryFolder folder;
  write_images(folder / "images");
  ASSERT_EQ(run(train_command(folder / "images", folder / "whole")).exit_code, 0);
  // Killed as soon as the second checkpoint is there: somewhere in the steps after it.
  const Finished killed =
      run("{ " + train_command(folder / "images", folder / "killed") + " & } ; process=$!; until [ -e " +
          quoted(folder / "killed/checkpoints/step-00000008.safetensors") +
          " ]; do sleep 0.01; kill -0 $process || exit 9; done; kill -9 $process; wait $process; exit $?");
  EXPECT_EQ(killed.exit_code, 128 + SIGKILL) << killed.out;
  EXPECT_FALSE(std::filesystem::exists(folder / "killed/checkpoints/step-00000018.safetensors"));
  const Finished resumed = run(train_command(folder / "images", folder / "killed"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.out;
  EXPECT_NE(resumed.out.find("resumed after step"), std::string::npos) << resumed.out;
  const Checkpoint whole = newest(folder / "whole"), parts = newest(folder / "killed");
  EXPECT_EQ(whole.step, parts.step);
  ASSERT_EQ(whole.tensors.size(), parts.tensors.size());
  for (const auto& [name, tensor] : whole.tensors) EXPECT_TRUE(torch::equal(tensor, parts.tensors.at(name))) << name;
}

TEST(Classify, ResumesWhereResultsStayTheSameOnly) {
  const TemporaryFolder folder;
  write_images(folder / "images");
  const auto train = [&](const std::string& more) {
    return run(train_command(folder / "images", folder / "out", more));
  };
  ASSERT_EQ(train("").exit_code, 0);
  const Finished again = train(" --recompute --warmup 3");  // which is the default
  EXPECT_EQ(again.exit_code, 0) << again.out;
  EXPECT_NE(again.out.find("resumed after step 18"), std::string::npos) << again.out;
  for (const auto& [more, named] :
       {std::pair{" --warmup 1", "warmup: 3, now 1"}, std::pair{" --mean 0.5 0.5 0.5 --std 1 1 1", "pixels/mean/0: "},
        std::pair{" --mixing-frozen", "model/mixing_frozen: false, now true"}}) {
    const Finished other = train(more);
    EXPECT_EQ(other.exit_code, 1) << other.out;
    EXPECT_NE(other.out.find(named), std::string::npos) << other.out;
  }
  for (const char* split : {"train", "val", "test"})
    std::filesystem::rename(folder / "images" / split / "class1", folder / "images" / split / "class_b");
  const Finished renamed = train("");
  EXPECT_EQ(renamed.exit_code, 1) << renamed.out;
  EXPECT_NE(renamed.out.find("classes/1: \"class1\", now \"class2\""), std::string::npos) << renamed.out;
}

TEST(Classify, TakesClassesWhoseNamesAreAnyBytes) {
  const TemporaryFolder folder;
  write_images(folder / "images");
  const char* const name = "caf\xE9 \x1b[31m";
  for (const char* split : {"train", "val", "test"})
    std::filesystem::rename(folder / "images" / split / "class1", folder / "images" / split / name);
  const auto out = folder / "out \xFF";
  const Finished trained = run(train_command(folder / "images", out, " --json ") + quoted(folder / "result.json"));
  ASSERT_EQ(trained.exit_code, 0) << trained.out;
  const io::SafeTensors weights = io::SafeTensors::load(out / "model.safetensors");
  EXPECT_EQ(weights.metadata().at("mhla.classes"), R"(["caf\\xe9 \\x1b[31m","class0","class2"])");
  EXPECT_EQ(read_json(folder / "result.json").at("settings").at("classes")[0], R"(caf\xe9 \x1b[31m)");
  const auto page = io::read_file(out / "report.html");
  EXPECT_NE(std::string(reinterpret_cast<const char*>(page.data()), page.size()).find("out \\xff"), std::string::npos);
  const Finished again = run(train_command(folder / "images", out, ""));
  EXPECT_EQ(again.exit_code, 0) << again.out;
  EXPECT_NE(again.out.find("resumed after step 18"), std::string::npos) << again.out;
  const Finished evaluated = run(std::string("'") + MHLA_PROGRAM + "' eval classify --device cpu --workers 1 --model " +
                                 quoted(out / "model.safetensors") + " --data " + quoted(folder / "images") +
                                 " --out " + quoted(folder / "eval"));
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.out;
  EXPECT_NE(evaluated.out.find(R"(caf\xe9 \x1b[31m 0)"), std::string::npos) << evaluated.out;
  EXPECT_EQ(evaluated.out.find('\x1b'), std::string::npos) << evaluated.out;
}

TEST(Classify, WithClosedStreamsLeavesTheSameFiles) {
  const TemporaryFolder folder;
  write_images(folder / "images");
  const std::string command =
      train_command(folder / "images", folder / "out") + " --json " + quoted(folder / "result.json") + " <&- >&-";
  ASSERT_EQ(run(command + " 2>&- ; exit $?").exit_code, 0);
  EXPECT_TRUE(read_json(folder / "result.json").at("finished").get<bool>());
  EXPECT_EQ(read_metrics(folder / "out/metrics.jsonl", 100, mhla::testing::no_damage).size(),
            16U);  // ten lines, six validations
  EXPECT_EQ(newest(folder / "out").step, 18);
}

TEST(Classify, WithoutValidationTheNewestWeightsAreKept) {
  const TemporaryFolder folder;
  write_images(folder / "images");
  std::filesystem::remove_all(folder / "images/val");
  const Finished finished = run(train_command(folder / "images", folder / "out"));
  EXPECT_EQ(finished.exit_code, 0) << finished.out;
  EXPECT_NE(finished.out.find("epoch 1:  not validated, newest weights kept"), std::string::npos) << finished.out;
  EXPECT_EQ(finished.out.find("(best)"), std::string::npos) << finished.out;
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model.safetensors"));
}

TEST(Classify, CountsImagesThatCannotBeReadOnce) {
  const TemporaryFolder folder;
  write_images(folder / "images");
  for (const char* name : {"train/class0/3.png", "train/class2/0.png", "val/class1/1.png", "test/class0/5.png"})
    io::write_file(folder / "images" / name, std::string_view("no picture"));
  std::vector<std::string> launchers = {""};
#ifdef MHLA_MPIRUN
  launchers.push_back(std::string(MHLA_MPIRUN) + " -np 2 ");
#endif
  for (const std::string& launcher : launchers) {
    const Finished finished =
        run(launcher + train_command(folder / "images", folder / "out", " --resume none --json ") +
            quoted(folder / "result.json"));
    EXPECT_EQ(finished.exit_code, 0) << finished.out;
    EXPECT_NE(finished.out.find("4 images could not be read and were left out\n"), std::string::npos) << finished.out;
    EXPECT_EQ(read_json(folder / "result.json").at("bad_images"), 4);
  }
}

TEST(Classify, SaysHowMuchOfInitFitsAndRefusesNothing) {
  const TemporaryFolder folder;
  write_images(folder / "images");
  const Finished first = run(train_command(folder / "images", folder / "first", ""));
  ASSERT_EQ(first.exit_code, 0) << first.out;
  const auto count = io::SafeTensors::load(folder / "first/model.safetensors").tensors().size();
  const Finished second = run(train_command(folder / "images", folder / "second", " --no-lepe --init ") +
                              quoted(folder / "first/model.safetensors"));
  EXPECT_EQ(second.exit_code, 0) << second.out;
  const std::string fitting = std::to_string(count - 4);  // without weight and bias of LePE in two layers
  EXPECT_NE(second.out.find(fitting + " of " + fitting + " tensors from "), std::string::npos) << second.out;
  EXPECT_NE(second.out.find("in the file, but not in the model:\n  blocks.0.attn.lepe.bias"), std::string::npos);
  io::save_tensors(folder / "other.safetensors", {{"stranger", torch::ones({3})}});
  const Finished refused =
      run(train_command(folder / "images", folder / "third", " --init ") + quoted(folder / "other.safetensors"));
  EXPECT_EQ(refused.exit_code, 2) << refused.out;
  EXPECT_NE(refused.out.find("other.safetensors, of which no tensor fits"), std::string::npos) << refused.out;
  EXPECT_FALSE(std::filesystem::exists(folder / "third"));
}

TEST(Classify, TakesRatesBelowTheStartOfTheWarmUp) {
  const TemporaryFolder folder;
  write_images(folder / "images");
  const Finished finished = run(train_command(folder / "images", folder / "out", " --lr 1e-8 --log-every 1"));
  EXPECT_EQ(finished.exit_code, 0) << finished.out;
  for (const io::Json& row : read_metrics(folder / "out/metrics.jsonl", 100, mhla::testing::no_damage))
    EXPECT_LE(row.value("lr", 0.0), 1e-8);
}

TEST(Classify, ProcessesThatDoNotFindEachOtherAreRefused) {
  const TemporaryFolder folder;
  write_images(folder / "images");
  const std::string command = train_command(folder / "images", folder / "out");
  std::vector<std::string> launchers = {"SLURM_STEP_NUM_TASKS=4 "};  // of srun without PMI or PMIx
#ifdef MHLA_MPIRUN
  launchers.push_back("PMI_RANK=0 PMI_SIZE=4 ");  // of a launcher this MPI does not know
#endif
  for (const std::string& launcher : launchers) {
    const Finished finished = run(launcher + command);
    EXPECT_EQ(finished.exit_code, 1) << finished.out;
    for (const char* part : {"announced 4 processes", "MPI found 1", "mpirun"})
      EXPECT_NE(finished.out.find(part), std::string::npos) << finished.out;
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  }
  const Finished batch_script = run("SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1 " + command);
  EXPECT_EQ(batch_script.exit_code, 0) << batch_script.out;
}

#ifdef MHLA_MPIRUN
// Losses of every step, and the weights all together: where a gradient is nothing but rounding, Adam takes full steps.
TEST(Classify, TwoProcessesTakeTheStepsOfOne) {
  const TemporaryFolder folder;
  write_images(folder / "images");
  const auto train = [&](const std::string& launcher, const char* out) {
    const Finished finished =
        run(launcher + train_command(folder / "images", folder / out, " --log-every 1 --checkpoint-every 0"));
    EXPECT_EQ(finished.exit_code, 0) << finished.out;
    return newest(folder / out);
  };
  const Checkpoint one = train("", "one"), two = train(std::string(MHLA_MPIRUN) + " -np 2 ", "two");
  EXPECT_EQ(two.processes, 2);
  double difference = 0.0, size = 0.0;
  for (const auto& [name, tensor] : one.tensors) {
    if (!name.starts_with("model/")) continue;
    difference += (tensor - two.tensors.at(name)).square().sum().item<double>();
    size += tensor.square().sum().item<double>();
  }
  EXPECT_LT(std::sqrt(difference / size), 1e-5);
  const auto rows = read_metrics(folder / "one/metrics.jsonl", 100, mhla::testing::no_damage);
  const auto others = read_metrics(folder / "two/metrics.jsonl", 100, mhla::testing::no_damage);
  ASSERT_EQ(rows.size(), others.size());
  ASSERT_GE(rows.size(), 18U);
  for (std::size_t i = 0; i < rows.size(); ++i)
    EXPECT_NEAR(rows[i].value("loss", 0.0), others[i].value("loss", 0.0), 1e-5 * rows[i].value("loss", 0.0));
}
#endif

struct WrongRun {
  const char* arguments;
  const char* named;
};

TEST(Classify, WrongArgumentsAreNamedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  write_images(folder / "images");
  for (const WrongRun& wrong :
       {WrongRun{"--batch 14 --attention magic", "--attention"}, WrongRun{"--batch 14 --blocks 99 99", "blocks"},
        WrongRun{"--batch 14 --heads 5", "heads"}, WrongRun{"--batch 43", "--batch"},
        WrongRun{"--batch 14 --accumulate 4", "--accumulate"}, WrongRun{"--batch 14 --mean 0 0 0", "--std"},
        WrongRun{"--batch 14 --epochs 1 --warmup 4", "--warmup"}, WrongRun{"--batch 14 --mixing-init magic", "mixing"},
        WrongRun{"--batch 14 --min-lr 1", "--min-lr"}, WrongRun{"--batch 14 --mixup 9", "mixup"}}) {
    const Finished finished =
        run(std::string("'") + MHLA_PROGRAM + "' train classify --device cpu --data " + quoted(folder / "images") +
            " --out " + quoted(folder / "out") + " " + wrong.arguments);
    EXPECT_EQ(finished.exit_code, 2) << wrong.arguments << ": " << finished.out;
    EXPECT_NE(finished.out.find(wrong.named), std::string::npos) << wrong.arguments << ": " << finished.out;
    EXPECT_FALSE(std::filesystem::exists(folder / "out")) << wrong.arguments;
  }
}

}  // namespace
}  // namespace mhla::train
