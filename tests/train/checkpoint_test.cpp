// Checkpoints: what they keep, and what happens to damaged ones.
#include "train/checkpoint.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstring>

#include "io/file.hpp"
#include "io/safetensors.hpp"
#include "support/expect_error.hpp"
#include "support/no_damage.hpp"
#include "support/temporary_folder.hpp"
#include "tensor_io/tensors.hpp"

namespace mhla::train {
namespace {

using mhla::testing::TemporaryFolder;

Checkpoint some_checkpoint(std::int64_t step) {
  return {.step = step, .tensors = {{"model/w", torch::arange(12.0).view({3, 4}) + step}}};
}

TEST(Checkpoints, KeepTheNewestAndComeBack) {
  const TemporaryFolder folder;
  const CheckpointFolder checkpoints(folder / "c");
  const auto fail = &mhla::testing::no_damage;
  EXPECT_FALSE(checkpoints.newest(fail).has_value());
  for (const std::int64_t step : {9, 10, 11}) checkpoints.save(some_checkpoint(step), 2);
  EXPECT_EQ(checkpoints.list().size(), 2U);
  io::write_file(folder / "c/step-00000012.safetensors.1234.unfinished", "half");
  const auto newest = checkpoints.newest(fail);
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->step, 11);
  EXPECT_TRUE(torch::equal(newest->tensors.at("model/w"), some_checkpoint(11).tensors.at("model/w")));
  EXPECT_FALSE(std::filesystem::exists(folder / "c/step-00000012.safetensors.1234.unfinished"));
}

TEST(Checkpoints, EveryDamageIsAnErrorWithFileAndReason) {
  const TemporaryFolder folder;
  save_checkpoint(folder / "good", some_checkpoint(1));
  const auto good = io::read_file(folder / "good");
  const auto expect_error = [&](std::vector<std::byte> bytes, const char* what) {
    io::write_file(folder / "bad", bytes);
    EXPECT_THROW(
        try { load_checkpoint(folder / "bad"); } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("/bad"), std::string::npos) << error.what();
          throw;
        },
        Error)
        << what;
  };
  for (std::size_t size = 0; size < good.size(); ++size)
    expect_error({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)}, "cut short");
  for (std::size_t i = 0; i < good.size(); ++i) {  // header and data
    auto bytes = good;
    bytes[i] ^= std::byte{4};
    expect_error(bytes, "a flipped bit");
  }
  io::write_file(folder / "all/step-00000001.safetensors", "nothing");
  const CheckpointFolder broken(folder / "all");
  int reports = 0;
  EXPECT_THROW(broken.newest([&](const std::string&) { ++reports; }), Error);
  EXPECT_EQ(reports, 1);
}

std::string characters(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A file of one tensor with these notes and the right checksum.
void write_with_notes(const std::filesystem::path& path, const std::string& notes) {
  const at::Tensor tensor = torch::ones({2});
  auto bytes = io::encode_safetensors({{"model/w", io::safe_tensor(tensor, "w")}},
                                      {{"mhla.checkpoint", notes}, {"mhla.crc32c", "00000000"}});
  seal(bytes);
  io::write_file(path, bytes);
}

TEST(Checkpoints, AChangedHeaderIsAnError) {
  const TemporaryFolder folder;
  save_checkpoint(folder / "good", some_checkpoint(10));
  const std::string good = characters(io::read_file(folder / "good"));
  for (const auto& [before, after] :
       {std::pair{R"(\"step\":10)", R"(\"step\":11)"}, std::pair{R"("dtype":"F32")", R"("dtype":"I32")"},
        std::pair{R"("shape":[3,4])", R"("shape":[4,3])"}}) {
    std::string changed = good;
    ASSERT_NE(changed.find(before), std::string::npos) << good;
    changed.replace(changed.find(before), std::strlen(before), after);
    io::write_file(folder / "bad", changed);
    mhla::expect_error([&] { load_checkpoint(folder / "bad"); }, {"/bad: the file does not match its checksum"});
  }
}

TEST(Checkpoints, OneOfTheFormatBeforeIsNamedAsSuch) {
  const TemporaryFolder folder;
  io::save_tensors(folder / "old", {{"model/w", torch::ones({2})}},
                   {{"mhla.checkpoint", R"({"step":1,"crc32c":1,"notes":{}})"}});
  mhla::expect_error([&] { load_checkpoint(folder / "old"); }, {"/old: not a checkpoint of this version, or damaged"});
}

TEST(Checkpoints, MissingOrMistypedNotesLeadToTheCheckpointBefore) {
  const TemporaryFolder folder;
  const std::string good = R"({"format":2,"step":2,"settings":{},"best":null,"seconds":1.5,"processes":1})";
  write_with_notes(folder / "good", good);
  EXPECT_EQ(load_checkpoint(folder / "good").step, 2);
  const CheckpointFolder checkpoints(folder / "c");
  checkpoints.save(some_checkpoint(1), 2);
  for (const char* notes :
       {"", "[]", "null", "{}", R"({"format":3,"step":2,"settings":{},"best":null,"seconds":1.5,"processes":1})",
        R"({"format":2,"step":-2,"settings":{},"best":null,"seconds":1.5,"processes":1})",
        R"({"format":2,"step":2.5,"settings":{},"best":null,"seconds":1.5,"processes":1})",
        R"({"format":2,"step":"2","settings":{},"best":null,"seconds":1.5,"processes":1})",
        R"({"format":2,"step":2,"settings":7,"best":null,"seconds":1.5,"processes":1})",
        R"({"format":2,"step":2,"settings":{},"best":"x","seconds":1.5,"processes":1})",
        R"({"format":2,"step":2,"settings":{},"best":null,"seconds":[],"processes":1})",
        R"({"format":2,"step":2,"settings":{},"best":null,"processes":1})"}) {
    write_with_notes(folder / "c/step-00000002.safetensors", notes);
    std::string reported;
    const auto found = checkpoints.newest([&](const std::string& line) { reported += line; });
    ASSERT_TRUE(found.has_value()) << notes;
    EXPECT_EQ(found->step, 1) << notes;
    EXPECT_NE(reported.find("step-00000002.safetensors: mhla.checkpoint"), std::string::npos) << notes << reported;
  }
}

TEST(Checkpoints, ADamagedLaterOneDoesNotPushOutThoseThatFollow) {
  const TemporaryFolder folder;
  const CheckpointFolder checkpoints(folder / "c");
  checkpoints.save(some_checkpoint(5), 1);
  io::write_file(folder / "c/step-00000009.safetensors", "damaged");
  checkpoints.save(some_checkpoint(7), 1);
  const auto newest = checkpoints.newest(mhla::testing::no_damage);
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->step, 7);
  EXPECT_EQ(checkpoints.list().size(), 1U);
}

TEST(Checkpoints, AFullDiskIsAnErrorAndThePreviousOneStays) {
  const TemporaryFolder folder;
  const CheckpointFolder checkpoints(folder / "c");
  checkpoints.save(some_checkpoint(1), 1);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 100;
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  std::string message;
  try {
    checkpoints.save(some_checkpoint(2), 1);
  } catch (const Error& error) {
    message = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("step-00000002.safetensors"), std::string::npos) << message;
  EXPECT_NE(message.find("cannot be written: File too large"), std::string::npos) << message;
  const auto kept = checkpoints.newest(mhla::testing::no_damage);
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->step, 1);
  EXPECT_EQ(mhla::testing::entries(folder / "c"), 1);
}

TEST(Checkpoints, RestoringListsEverythingThatDoesNotFit) {
  try {
    restore({{"a", torch::zeros({2})}, {"b", torch::zeros({3})}, {"d", torch::zeros({1})}},
            {{"m/b", torch::zeros({4})}, {"m/c", torch::zeros({1})}, {"m/d", torch::zeros({1}, at::kInt)}}, "m/",
            "file");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "file: m/a is missing; m/b is of shape [4], here [3]; m/d is of type Int, here Float; m/c is not part of "
        "this run");
  }
}

}  // namespace
}  // namespace mhla::train
