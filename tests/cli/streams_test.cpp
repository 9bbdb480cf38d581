// What the program does with its output, from outside: where it goes, what it shows, and when it cannot be written.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "io/file.hpp"
#include "io/json.hpp"
#include "io/safetensors.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace mhla {
namespace {

using testing::Finished;
using testing::run_command;
using testing::run_mhla;
using testing::TemporaryFolder;

std::string quoted(const std::filesystem::path& path) { return "'" + path.string() + "'"; }

std::string text_of(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(Output, ThatCannotBeWrittenFailsWithOneAndSaysWhy) {
  for (const char* arguments :
       {"version", "--help", "version --json -", "completion bash", "devices --json /dev/stdout"}) {
    const Finished run = run_mhla(std::string(arguments) + " 2>&1 > /dev/full");
    EXPECT_EQ(run.exit_code, 1) << arguments;
    EXPECT_NE(run.out.find("cannot be written: No space left on device"), std::string::npos) << arguments << run.out;
  }
  EXPECT_EQ(run_mhla("fly > /dev/full 2>&1").exit_code, 2);
}

TEST(Output, IntoAClosedPipeEndsQuietly) {
  const TemporaryFolder folder;
  const std::string said = quoted(folder / "said"), code = quoted(folder / "code");
  run_command("{ sleep 0.3; '" + std::string(MHLA_PROGRAM) + "' --help 2> " + said + "; echo $? > " + code +
              "; } | true");
  EXPECT_EQ(text_of(folder / "code"), std::to_string(128 + SIGPIPE) + "\n");
  EXPECT_EQ(text_of(folder / "said"), "");
}

TEST(Output, BeyondTheLimitOfAFileIsAnErrorThatNamesIt) {
  const TemporaryFolder folder;
  const Finished run =
      run_command("ulimit -f 0; '" + std::string(MHLA_PROGRAM) + "' version --json " + quoted(folder / "f") + " 2>&1");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find((folder / "f").string()), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("cannot be written: File too large"), std::string::npos) << run.out;
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Output, GoesThroughDevicesPipesAndLinks) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("/dev/null", folder / "null");
  EXPECT_EQ(run_mhla("version --json " + quoted(folder / "null")).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "null"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));

  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const Finished piped = run_command("cat " + quoted(folder / "pipe") + " & '" + MHLA_PROGRAM + "' version --json " +
                                     quoted(folder / "pipe") + " > /dev/null; wait");
  EXPECT_TRUE(io::parse_json(piped.out, "pipe").contains("compiler"));
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));

  const auto both = folder / "both";
  EXPECT_EQ(run_mhla("version --json /dev/stdout > " + quoted(both)).exit_code, 0);
  EXPECT_NE(text_of(both).find("compiler  "), std::string::npos) << text_of(both);
  EXPECT_NE(text_of(both).find("\"compiler\": "), std::string::npos) << text_of(both);
}

TEST(Output, OfClosedStreamsLandsNowhere) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_mhla("version --json " + quoted(folder / "f") + " <&- >&- 2>&-").exit_code, 0);
  EXPECT_TRUE(io::parse_json(text_of(folder / "f"), "f").contains("compiler"));
  EXPECT_EQ(run_mhla("version --json - 2>&-  >&-").exit_code, 0);
  EXPECT_EQ(run_mhla("fly 2>&-").exit_code, 2);
}

constexpr const char* kEvil =
    "\x1b[31mred\x07\n\xC2\x9B"
    "2J";
constexpr const char* kEvilShown = "\\x1b[31mred\\x07\\x0a\\xc2\\x9b2J";

TEST(Output, ShowsNamesOfTensorsEscaped) {
  const TemporaryFolder folder;
  const std::vector<std::byte> data(4);
  io::write_file(folder / "evil.safetensors",
                 io::encode_safetensors({{kEvil, {"F32", {1}, data}}}, {{std::string("key") + kEvil, kEvil}}));
  const Finished run = run_mhla("inspect " + quoted(folder / "evil.safetensors"));
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_NE(run.out.find(std::string("\n") + kEvilShown + "  F32"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find(std::string("key") + kEvilShown + ": " + kEvilShown), std::string::npos) << run.out;
  for (const char* raw : {"\x1b", "\x07", "\xC2\x9B"}) EXPECT_EQ(run.out.find(raw), std::string::npos) << run.out;
  const io::Json json =
      io::parse_json(run_mhla("inspect --json - " + quoted(folder / "evil.safetensors") + " 2>&-").out, "");
  EXPECT_EQ(json[0].at("tensors")[0].at("name"), kEvil);  // JSON has escapes of its own
}

TEST(Output, ShowsNamesOfFilesEscaped) {
  const TemporaryFolder folder;
  const auto evil = folder / "\x1b[2J caf\xE9";
  io::write_file(evil, "nothing");
  for (const char* command : {"inspect ", "parity ", "classify "}) {
    const Finished run = run_mhla(command + quoted(evil) + " 2>&1");
    EXPECT_EQ(run.exit_code, 1) << run.out;
    EXPECT_EQ(run.out.find('\x1b'), std::string::npos) << run.out;
    EXPECT_NE(run.out.find("\\x1b[2J caf\\xe9"), std::string::npos) << run.out;
  }
  const Finished run = run_mhla("inspect --json - " + quoted(evil) + " 2>/dev/null");
  EXPECT_NE(io::parse_json(run.out, "json")[0].at("file").get<std::string>().find("caf\\xe9"), std::string::npos);
}

}  // namespace
}  // namespace mhla
