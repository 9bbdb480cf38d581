// The folder of a run: whose it is, and what a resumed run finds in it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

#include "io/file.hpp"
#include "support/expect_error.hpp"
#include "support/no_damage.hpp"
#include "support/temporary_folder.hpp"
#include "train/run_lock.hpp"
#include "train/run_log.hpp"

namespace mhla::train {
namespace {

using mhla::testing::no_damage;
using mhla::testing::TemporaryFolder;

TEST(RunLock, NamesTheProcessThatHasTheFolder) {
  const TemporaryFolder folder;
  const auto out = folder / "out";
  {
    const RunLock lock(out, no_damage);
    expect_error([&] { RunLock(out, no_damage); },
                 {out.string() + ": process " + std::to_string(::getpid()) + " on ", "trains in this folder"});
    const RunLock elsewhere(folder / "other", no_damage);
  }
  EXPECT_NO_THROW(RunLock(out, no_damage));
}

TEST(RunLock, WhatAKilledProcessLeftIsNoObstacle) {
  const TemporaryFolder folder;
  for (const char* left : {"process 1 on this machine (started 1970-01-01 00:00:00 UTC)", "", "\x1b[2J no process"}) {
    io::write_file(folder / "lock", left);  // process 1 lives, but does not train
    EXPECT_NO_THROW(RunLock(folder.path(), no_damage));
  }
}

TEST(RunLog, DamagedLinesAreLeftOutAndReported) {
  const TemporaryFolder folder;
  const std::string step = R"({"step":1,"epoch":0.5,"loss":1.5,"grad_norm":1.0,"lr":0.1})";
  const std::string evaluation = R"({"step":2,"epoch":1.0,"seconds":3.0,"val/accuracy":0.5})";
  const std::vector<std::string> damaged = {"",
                                            "{",
                                            "\x01\xff",
                                            "[1]",
                                            "7",
                                            R"({"step":1})",
                                            R"({"step":"1","epoch":1.0,"seconds":1.0})",
                                            R"({"step":1,"epoch":"x","seconds":1.0})",
                                            R"({"step":1,"epoch":1.0,"loss":"x","lr":0.1})",
                                            R"({"step":1,"epoch":1.0,"loss":1.0})",
                                            R"({"step":1,"epoch":1.0,"seconds":null})"};
  std::string text = step + "\n";
  for (const std::string& line : damaged) text += line + "\n";
  io::write_file(folder / "metrics.jsonl", text + evaluation + "\n" + R"({"step":3,"epo)");

  std::vector<std::string> reports;
  const auto rows =
      read_metrics(folder / "metrics.jsonl", 5, [&](const std::string& line) { reports.push_back(line); });
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("loss"), 1.5);
  EXPECT_EQ(rows[1].at("seconds"), 3.0);
  ASSERT_EQ(reports.size(), damaged.size());
  for (std::size_t i = 0; i < reports.size(); ++i)
    EXPECT_NE(reports[i].find("metrics.jsonl: line " + std::to_string(i + 2)), std::string::npos) << reports[i];

  std::ostringstream said;
  RunLog log(folder.path(), 2, "samples", {{"training", "Toy"}}, said);
  EXPECT_NE(said.str().find("damaged line left out"), std::string::npos);
  log.evaluation(3, 1.5, 4.0, {0.5, {{"val/accuracy", 0.5}}}, true);
  EXPECT_EQ(read_metrics(folder / "metrics.jsonl", 5, no_damage).size(), 3U);
}

}  // namespace
}  // namespace mhla::train
