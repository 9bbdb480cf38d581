// Interrupted and resumed runs equal uninterrupted ones, bit for bit.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "io/file.hpp"
#include "support/no_damage.hpp"
#include "support/temporary_folder.hpp"
#include "train/checkpoint.hpp"
#include "train/run_log.hpp"

namespace mhla::train {
namespace {

using mhla::testing::TemporaryFolder;
constexpr std::int64_t kSteps = 23;

class Worker {
 public:
  Worker(const std::filesystem::path& out, int milliseconds_per_step, const char* said = "worker.log") {
    std::filesystem::create_directories(out);
    const std::string log = (out / said).string(), folder = out.string();
    const std::string steps = std::to_string(kSteps), pause = std::to_string(milliseconds_per_step);
    pid_ = ::fork();
    if (pid_ == 0) {
      const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      ::dup2(file, STDOUT_FILENO);
      ::dup2(file, STDERR_FILENO);
      ::execl(MHLA_TRAIN_WORKER, "train_worker", folder.c_str(), steps.c_str(), pause.c_str(), nullptr);
      ::_exit(127);
    }
  }
  pid_t number() const { return pid_; }
  void send(int signal) const { ::kill(pid_, signal); }
  int wait() const {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
};

void wait_for_step(const std::filesystem::path& out, std::int64_t step) {
  for (int i = 0; i < 3000; ++i) {
    std::ifstream stream(out / "metrics.jsonl");
    std::string line, last;
    while (std::getline(stream, line)) last = line;
    const auto place = last.find("\"step\":");
    if (place != std::string::npos && std::stoll(last.substr(place + 7)) >= step) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << "the worker did not reach step " << step;
}

std::string text_of(const std::filesystem::path& file) {
  const auto bytes = io::read_file(file);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Checkpoint final_checkpoint(const std::filesystem::path& out) {
  auto found = CheckpointFolder(out / "checkpoints").newest(mhla::testing::no_damage);
  if (!found) throw Error(out.string() + ": no checkpoint");
  return *found;
}

void expect_same(const Checkpoint& a, const Checkpoint& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.best, b.best);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) EXPECT_TRUE(torch::equal(tensor, b.tensors.at(name))) << name;
}

Checkpoint uninterrupted(const TemporaryFolder& folder) {
  EXPECT_EQ(Worker(folder / "whole", 0).wait(), 0);
  return final_checkpoint(folder / "whole");
}

TEST(Resume, AfterKillNineEqualsAnUninterruptedRun) {
  const TemporaryFolder folder;
  for (const std::int64_t killed_at : {7, 16}) {  // between two checkpoints, before and after an epoch's end
    const Worker worker(folder / "killed", 20);
    wait_for_step(folder / "killed", killed_at);
    worker.send(SIGKILL);
    ASSERT_EQ(worker.wait(), -SIGKILL);
  }
  EXPECT_EQ(Worker(folder / "killed", 0).wait(), 0);
  expect_same(final_checkpoint(folder / "killed"), uninterrupted(folder));

  const auto rows = read_metrics(folder / "killed/metrics.jsonl", kSteps, mhla::testing::no_damage);
  const auto whole = read_metrics(folder / "whole/metrics.jsonl", kSteps, mhla::testing::no_damage);
  ASSERT_EQ(rows.size(), whole.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("step"), whole[i].at("step"));
    EXPECT_EQ(rows[i].value("loss", -1.0), whole[i].value("loss", -1.0));
  }
}

TEST(Resume, AfterASignalGoesOnFromTheVeryStep) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const TemporaryFolder folder;
    const Worker worker(folder / "stopped", 20);
    wait_for_step(folder / "stopped", 8);
    worker.send(signal);
    EXPECT_EQ(worker.wait(), 3);
    EXPECT_NE(final_checkpoint(folder / "stopped").step % 5, 0);  // between two checkpoints
    EXPECT_EQ(Worker(folder / "stopped", 0).wait(), 0);
    expect_same(final_checkpoint(folder / "stopped"), uninterrupted(folder));
  }
}

TEST(Resume, ADamagedCheckpointIsReportedAndThePreviousTaken) {
  const TemporaryFolder folder;
  ASSERT_EQ(Worker(folder / "damaged", 0).wait(), 0);
  const CheckpointFolder checkpoints(folder / "damaged/checkpoints");
  const auto files = checkpoints.list();
  ASSERT_EQ(files.size(), 2U);
  auto bytes = io::read_file(files[0]);
  bytes[bytes.size() - 100] ^= std::byte{1};  // one bit of one tensor
  io::write_file(files[0], bytes);
  ASSERT_EQ(Worker(folder / "damaged", 0).wait(), 0);
  const std::string text = text_of(folder / "damaged/worker.log");
  EXPECT_NE(text.find(files[0].string() + ": the file does not match its checksum"), std::string::npos) << text;
  EXPECT_NE(text.find("resumed after step 20 of 23"), std::string::npos) << text;
  expect_same(final_checkpoint(folder / "damaged"), uninterrupted(folder));
}

TEST(Resume, OfTwoTrainingsInOneFolderOneRunsAndOneRefuses) {
  const TemporaryFolder folder;
  const Worker first(folder / "shared", 20);
  wait_for_step(folder / "shared", 3);
  first.send(SIGSTOP);
  const Worker second(folder / "shared", 0, "second.log");
  EXPECT_EQ(second.wait(), 1);
  first.send(SIGCONT);
  EXPECT_EQ(first.wait(), 0);
  EXPECT_NE(text_of(folder / "shared/second.log").find("process " + std::to_string(first.number()) + " on "),
            std::string::npos)
      << text_of(folder / "shared/second.log");
  expect_same(final_checkpoint(folder / "shared"), uninterrupted(folder));
}

#ifdef MHLA_MPIRUN
TEST(Processes, TwoOfHalfTheBatchEqualOneOfTheWhole) {
  const TemporaryFolder folder;
  const auto run = [&](int processes, const std::string& name) {
    const std::string command = std::string(MHLA_MPIRUN) + " -np " + std::to_string(processes) + " '" +
                                MHLA_TRAIN_WORKER + "' '" + (folder / name).string() + "' 15 0 0.0 > '" +
                                (folder / (name + ".log")).string() + "' 2>&1";
    return std::system(command.c_str());
  };
  ASSERT_EQ(run(1, "one"), 0);
  ASSERT_EQ(run(2, "two"), 0);
  const Checkpoint one = final_checkpoint(folder / "one"), two = final_checkpoint(folder / "two");
  EXPECT_EQ(one.processes, 1);
  EXPECT_EQ(two.processes, 2);
  for (const auto& [name, tensor] : one.tensors) {
    if (name.starts_with("random/")) continue;
    EXPECT_TRUE(torch::allclose(tensor, two.tensors.at(name), 1e-5, 1e-6))
        << name << " " << (tensor - two.tensors.at(name)).abs().max().item<double>();
  }
}
#endif

}  // namespace
}  // namespace mhla::train
