// `mhla train language`: what a run learns and leaves behind, and that it does not depend on how its work is divided.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "models/lm/lm_design.hpp"
#include "support/expect_error.hpp"
#include "support/program.hpp"
#include "support/small_tokens.hpp"
#include "support/temporary_folder.hpp"
#include "tasks/language/language_model.hpp"
#include "tasks/language/training.hpp"
#include "tasks/training_runs.hpp"
#include "train/run_log.hpp"

namespace mhla::tasks {
namespace {

using mhla::testing::Finished;
using mhla::testing::newest;
using mhla::testing::quoted;
using mhla::testing::TemporaryFolder;

// Tokens, and runs of a model that is small enough to train in a second.
class TrainLanguage : public ::testing::Test {
 protected:
  TrainLanguage() {
    at::set_num_threads(1);  // sums as small as these take longer on more
    mhla::testing::write_small_tokens(folder_ / "tokens");
  }
  ~TrainLanguage() override { at::set_num_threads(threads_); }

  TrainLanguageOptions options(const std::string& out) const {
    TrainLanguageOptions options;
    options.data = (folder_ / "tokens").string();
    options.out = (folder_ / out).string();
    options.model = {{"model", "lm_tiny"}, {"width", 32}, {"depth", 2}, {"heads", 2}, {"block_size", 8}};
    options.context = 32, options.batch_tokens = 256, options.steps = 12;
    options.lr = 1e-2;
    options.log_every = 3, options.eval_every = 6, options.checkpoint_every = 4;
    options.sample_tokens = 8;
    return options;
  }

  TrainedLanguageModel train(const TrainLanguageOptions& options, const TrainingDevice& place = {}) {
    const auto communicator = train::make_communicator();
    return train_language_model(options, place, *communicator, text_);
  }

  std::vector<io::Json> rows(const std::string& out) const {
    return train::read_metrics(folder_ / out / "metrics.jsonl", 1 << 20);
  }

  // The same run through the program.
  std::string command(const std::string& out, const std::string& more = "") const {
    return std::string("'") + MHLA_PROGRAM + "' train language --data " + quoted(folder_ / "tokens") + " --out " +
           quoted(folder_ / out) +
           " --model lm_tiny --width 32 --depth 2 --heads 2 --block-size 8 --context 32 --batch-tokens 256 --steps 12"
           " --lr 1e-3 --log-every 3 --eval-every 6 --checkpoint-every 4 --sample-tokens 8 --ema 0.5 --device cpu"
           " --threads 1" +
           more + " 2>&1";
  }

  void refused(const TrainLanguageOptions& options, std::initializer_list<std::string_view> mentions) {
    EXPECT_THROW(train(options), UsageError);
    expect_error([&] { train(options); }, mentions);
    EXPECT_FALSE(std::filesystem::exists(options.out));
  }

  TemporaryFolder folder_;
  std::ostringstream text_;
  int threads_ = at::get_num_threads();
};

// Of the weights of two runs, relative to their size.
double difference(const train::Checkpoint& one, const train::Checkpoint& other) {
  double difference = 0.0, size = 0.0;
  for (const auto& [name, tensor] : one.tensors) {
    if (!name.starts_with("model/")) continue;
    difference += (tensor - other.tensors.at(name)).square().sum().item<double>();
    size += tensor.square().sum().item<double>();
  }
  return std::sqrt(difference / size);
}

TEST_F(TrainLanguage, LearnsAndLeavesAFolderThatOpensWithItsTokenizer) {
  TrainLanguageOptions given = options("out");
  given.steps = 60, given.eval_every = 20;
  given.prompt = "the theme";
  const TrainedLanguageModel trained = train(given);
  EXPECT_TRUE(trained.finished);
  std::vector<double> losses, held_out;
  for (const io::Json& row : rows("out")) {
    if (row.contains("loss")) losses.push_back(row["loss"].get<double>());
    if (!row.contains("val/loss")) continue;
    held_out.push_back(row["val/loss"].get<double>());
    EXPECT_NEAR(row["val/perplexity"].get<double>(), std::exp(held_out.back()), 1e-6);
    EXPECT_TRUE(row["text"].get<std::string>().starts_with("the theme")) << row.dump();
  }
  EXPECT_NEAR(losses.front(), std::log(260.0), 0.2);
  EXPECT_LT(losses.back(), 1.5) << text_.str();
  ASSERT_EQ(held_out.size(), 3U);
  EXPECT_LT(held_out[2], held_out[0]);
  EXPECT_EQ(trained.results["val/loss"], *std::ranges::min_element(held_out));
  EXPECT_NE(text_.str().find("tokens/s"), std::string::npos);

  const LanguageModel opened = open_language_model(folder_ / "out");
  EXPECT_EQ(opened.tokenizer->fingerprint(), text::open_tokenizer(folder_ / "tokens")->fingerprint());
  EXPECT_EQ(opened.model->options.blocks, 4);
  EXPECT_EQ(opened.model->options.vocabulary, 260);
  const auto page = io::read_file(folder_ / "out/report.html");
  const std::string_view html(reinterpret_cast<const char*>(page.data()), page.size());
  EXPECT_NE(html.find("the theme"), std::string_view::npos);
}

// Of one whole split the bits of a byte are those of a token, shared out.
TEST_F(TrainLanguage, BitsPerByteFollowFromTheIndex) {
  TrainLanguageOptions given = options("out");
  given.steps = 1;
  const io::Json results = train(given).results;
  const data::TokenIndex index = data::read_token_index(folder_ / "tokens/val");
  EXPECT_NEAR(results["val/bits_per_byte"].get<double>(),
              results["val/loss"].get<double>() / std::log(2.0) * static_cast<double>(index.tokens) /
                  static_cast<double>(index.bytes),
              1e-9);
}

TEST_F(TrainLanguage, GoesOnAfterKillNineBitForBit) {
  const Finished first = mhla::testing::run_command(command("whole"));
  ASSERT_EQ(first.exit_code, 0) << first.out;
  const Finished killed = mhla::testing::run_command(
      "{ " + command("killed") + " & } ; process=$!; until [ -e " +
      quoted(folder_ / "killed/checkpoints/step-00000004.safetensors") +
      " ]; do sleep 0.01; kill -0 $process || exit 9; done; kill -9 $process; wait $process; exit $?");
  EXPECT_EQ(killed.exit_code, 128 + SIGKILL) << killed.out;
  const Finished resumed = mhla::testing::run_command(command("killed"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.out;
  EXPECT_NE(resumed.out.find("resumed after step"), std::string::npos) << resumed.out;
  const train::Checkpoint whole = newest(folder_ / "whole"), parts = newest(folder_ / "killed");
  ASSERT_EQ(whole.tensors.size(), parts.tensors.size());
  for (const auto& [name, tensor] : whole.tensors) EXPECT_TRUE(torch::equal(tensor, parts.tensors.at(name))) << name;

  const Finished other = mhla::testing::run_command(command("killed", " --warmup 3"));
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_NE(other.out.find("warmup: 2, now 3"), std::string::npos) << other.out;
}

#ifdef MHLA_MPIRUN
TEST_F(TrainLanguage, TwoProcessesTakeTheStepsOfOne) {
  for (const std::string launcher : {"", MHLA_MPIRUN " -np 2 "}) {
    const Finished finished = mhla::testing::run_command(launcher + command(launcher.empty() ? "one" : "two"));
    EXPECT_EQ(finished.exit_code, 0) << finished.out;
  }
  const train::Checkpoint one = newest(folder_ / "one"), two = newest(folder_ / "two");
  EXPECT_EQ(two.processes, 2);
  EXPECT_LT(difference(one, two), 1e-5);
  EXPECT_NEAR(rows("two").back()["val/loss"].get<double>(), rows("one").back()["val/loss"].get<double>(), 1e-5);
}
#endif

TEST_F(TrainLanguage, HowAStepIsDividedChangesNoMoreThanRounding) {
  for (const std::int64_t micro_batch : {8, 2}) {
    TrainLanguageOptions given = options("by" + std::to_string(micro_batch));
    given.micro_batch = micro_batch;
    given.lr = 1e-3;  // Adam makes large steps of rounding where gradients are small
    given.separate_documents = true;
    train(given);
  }
  EXPECT_LT(difference(newest(folder_ / "by8"), newest(folder_ / "by2")), 1e-5);
  EXPECT_NEAR(rows("by8").front()["loss"].get<double>(), rows("by2").front()["loss"].get<double>(), 1e-5);
  EXPECT_NEAR(rows("by8").back()["val/loss"].get<double>(), rows("by2").back()["val/loss"].get<double>(), 1e-5);
}

TEST_F(TrainLanguage, RecomputationChangesNothing) {
  TrainLanguageOptions given = options("kept");
  train(given);
  given.out = (folder_ / "again").string();
  given.model["recompute"] = true;
  train(given);
  EXPECT_LT(difference(newest(folder_ / "kept"), newest(folder_ / "again")), 1e-6);
}

TEST_F(TrainLanguage, EveryAttentionAndHybridsOfThemLearn) {
  for (const std::vector<std::string>& attention :
       {std::vector<std::string>{"softmax"}, {"linear"}, {"gla"}, {"mhla", "softmax"}}) {
    TrainLanguageOptions given = options("out_" + attention.front());
    given.model["attention"] = attention;
    given.separate_documents = attention.front() == "gla";
    train(given);
    const std::vector<io::Json> all = rows("out_" + attention.front());
    EXPECT_LT(all.back()["val/loss"].get<double>(), 4.5) << attention.front();
  }
}

// Sizes come with the weights; those of another attention stay as they were initialised.
TEST_F(TrainLanguage, InitBeginsWithTheModelOfAFolder) {
  TrainLanguageOptions given = options("first");
  const io::Json before = train(given).results;
  given.init = given.out;
  given.out = (folder_ / "second").string();
  given.model = io::Json::object();
  given.steps = 1, given.lr = 1e-12;
  EXPECT_NEAR(train(given).results["val/loss"].get<double>(), before["val/loss"].get<double>(), 1e-6);
  EXPECT_EQ(open_language_model(given.out).model->options, open_language_model(given.init).model->options);
  given.out = (folder_ / "third").string();
  given.model["attention"] = {"softmax"};
  EXPECT_GT(train(given).results["val/loss"].get<double>(), before["val/loss"].get<double>() + 0.01);
  EXPECT_EQ(models::LmDesign(open_language_model(given.out).model->options).width, 32);
}

TEST_F(TrainLanguage, WrongOptionsAreNamedBeforeAnythingIsWritten) {
  const auto refused_with = [&](auto change, std::initializer_list<std::string_view> mentions) {
    TrainLanguageOptions given = options("out");
    change(given);
    refused(given, mentions);
  };
  using Options = TrainLanguageOptions;
  refused_with([](Options& o) { o.batch_tokens = 100; }, {"--batch-tokens is 100; it must be a multiple of 32"});
  refused_with([](Options& o) { o.batch_tokens = 1 << 20; }, {"--batch-tokens is 1048576, 32768 windows", "train has"});
  refused_with([](Options& o) { o.micro_batch = 3; }, {"--micro-batch is 3; it must be a divisor of 8"});
  refused_with([](Options& o) { o.context = 1024, o.batch_tokens = 1024; },
               {"--context is 1024; ", "val has", "at least one more"});
  refused_with([](Options& o) { o.model["blocks"] = 2; }, {"--blocks is 2; --context 32 makes 4 blocks of 8 tokens"});
  refused_with([](Options& o) { o.model["heads"] = 5; }, {"model: key_ratio", "5 equal heads"});
  refused_with([](Options& o) { o.prompt = std::string(40, 'x'); }, {"--prompt has 40 tokens; --context 32"});
  refused_with([](Options& o) { o.prompt = "\xFF"; }, {"--prompt is no UTF-8"});
  refused_with([](Options& o) { o.min_lr = 1.0; }, {"--min-lr is 1, above --lr 0.01"});
  refused_with([&](Options& o) { o.data = folder_.path().string(); }, {"--tokenizer is needed"});
  refused_with(
      [&](Options& o) {
        o.data = folder_.path().string();
        o.tokenizer = (folder_ / "tokens").string();
      },
      {"which has no folder train; `mhla tokenize` makes it"});
  io::write_file(folder_ / "other.model", mhla::testing::small_sentence_piece());
  refused_with([&](Options& o) { o.tokenizer = (folder_ / "other.model").string(); },
               {"train was made with the tokenizer", "but --tokenizer is"});
}

// A token past the vocabulary in a file ends the run with the file's name.
TEST_F(TrainLanguage, TokensPastTheVocabularyAreRefused) {
  const std::filesystem::path split = folder_ / "tokens/train";
  const data::TokenIndex index = data::read_token_index(split);
  const std::vector<text::Token> wrong(static_cast<std::size_t>(index.tokens), 300);
  data::write_shard(split / index.shards.front().file, wrong, 1000);
  expect_error([&] { train(options("out")); }, {split.string(), "300"});
}

class GpuTrainLanguage : public TrainLanguage {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device: GPU tests not run";
  }
};

TEST_F(GpuTrainLanguage, LossesAreThoseOfTheCpu) {
  const auto losses = [&](const std::string& out, const TrainingDevice& place) {
    TrainLanguageOptions given = options(out);
    given.lr = 1e-3;
    given.model["attention"] = {"mhla", "softmax"};
    given.separate_documents = true;
    train(given, place);
    std::vector<double> all;
    for (const io::Json& row : rows(out)) all.push_back(row.contains("loss") ? row["loss"] : row["val/loss"]);
    return all;
  };
  const std::vector<double> cpu = losses("cpu", {}), gpu = losses("gpu", {.device = at::kCUDA});
  const std::vector<double> bf16 = losses("bf16", {.device = at::kCUDA, .bf16 = true});
  ASSERT_EQ(cpu.size(), gpu.size());
  ASSERT_EQ(cpu.size(), bf16.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_NEAR(gpu[i], cpu[i], 1e-3) << i;
    EXPECT_NEAR(bf16[i], cpu[i], 2e-2) << i;
  }
}

}  // namespace
}  // namespace mhla::tasks
