// The program from outside: exit codes, messages and JSON.
#include "support/program.hpp"

#include <gtest/gtest.h>

#include <set>

#include "io/file.hpp"
#include "io/json.hpp"
#include "io/safetensors.hpp"
#include "support/temporary_folder.hpp"

namespace mhla {
namespace {

using testing::Finished;
using testing::run_mhla;

std::string data(const std::string& name) { return std::string("'") + MHLA_TEST_DATA + "/" + name + "'"; }

TEST(Program, HelpListsEveryCommandAndSucceeds) {
  const Finished run = run_mhla("--help");
  EXPECT_EQ(run.exit_code, 0);
  for (const char* command : {"demo", "selftest", "bench", "analyze", "parity", "devices", "version", "completion"})
    EXPECT_NE(run.out.find(command), std::string::npos) << command;
  EXPECT_EQ(run_mhla("bench op --help").exit_code, 0);
}

struct WrongLine {
  const char* name;
  const char* arguments;
  const char* named;  // what the message must name

  friend std::ostream& operator<<(std::ostream& stream, const WrongLine& line) { return stream << line.arguments; }
};

class WrongCommandLine : public ::testing::TestWithParam<WrongLine> {};

TEST_P(WrongCommandLine, ExitsWithTwoAndNamesTheArgument) {
  const Finished run = run_mhla(std::string(GetParam().arguments) + " 2>&1");
  EXPECT_EQ(run.exit_code, 2) << run.out;
  EXPECT_NE(run.out.find(GetParam().named), std::string::npos) << run.out;
}

INSTANTIATE_TEST_SUITE_P(
    Table, WrongCommandLine,
    ::testing::Values(
        WrongLine{"Nothing", "", "a command is missing; it may be: demo"},
        WrongLine{"BenchOfNothing", "bench", "it may be: op"},
        WrongLine{"BenchOfUnknown", "bench fly", "\"fly\" is no command of bench; it may be: op"},
        WrongLine{"UnknownCommand", "fly", "\"fly\" is no command; it may be: demo"},
        WrongLine{"MisspeltCommand", "trian classify", "\"trian\" is no command; it may be: demo"},
        WrongLine{"MisspeltTask", "train clasify --data .", "\"clasify\" is no command of train; it may be: classify"},
        WrongLine{"UnknownOption", "version --fast", "--fast"}, WrongLine{"ParityWithoutFiles", "parity", "files"},
        WrongLine{"ParityMissingFile", "parity /nonexistent/x", "/nonexistent/x"},
        WrongLine{"BenchShape", "bench op --shape huge", "--shape"},
        WrongLine{"BenchImpl", "bench op --impl magic", "--impl"},
        WrongLine{"BenchDtype", "bench op --dtype f8", "--dtype"},
        WrongLine{"BenchDevice", "bench op --device tpu", "--device"},
        WrongLine{"BenchThreads", "bench op --threads -3 --quick", "--threads"},
        WrongLine{"BenchModelSize", "bench model --size 0",
                  R"(--size: it is "0"; it must be an integer from 1 to 16384)"},
        WrongLine{"BenchPass", "bench op --passes sideways", "--passes"},
        WrongLine{"AnalyzeBlocks", "analyze --grid 8 8 --blocks 9 9", "--blocks"},
        WrongLine{"AnalyzeGrid", "analyze --grid 100 100 --blocks 4 4", "--grid"},
        WrongLine{"AnalyzeAxes", "analyze --grid 8 8 --blocks 2", "--blocks"},
        WrongLine{"SeedNegative", "analyze --seed -1", R"(--seed: it is "-1"; it must be an integer of 0 or more)"},
        WrongLine{"SeedEmpty", "demo --seed ''", R"(--seed: it is ""; it must be an integer)"},
        WrongLine{"MinTimeNan", "bench op --quick --min-time nan",
                  R"(--min-time: it is "nan"; it must be a number from 0 to 3600)"},
        WrongLine{"EpochsNan", "train classify --data . --epochs nan", "--epochs: it is \"nan\""},
        WrongLine{"EmaNan", "train classify --data . --ema nan", "--ema: it is \"nan\""},
        WrongLine{"HeadsFraction", "train classify --data . --heads 1.5",
                  R"(--heads: it is "1.5"; it must be an integer from 0 to 4096)"},
        WrongLine{"RandAugmentFraction", "train classify --data . --rand-augment rand-n1.5",
                  R"(--rand-augment: RandAugment "rand-n1.5": "1.5" is not an integer)"},
        WrongLine{"JsonWithoutFile", "version --json", "--json"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Program, ParitySucceedsOnTheStoredCases) {
  const Finished run = run_mhla("parity --json - " + data("nlp_op_256.safetensors") + " " +
                                data("wan_mixing_init.safetensors") + " 2>/dev/null");
  EXPECT_EQ(run.exit_code, 0);
  const io::Json result = io::parse_json(run.out, "output");
  EXPECT_TRUE(result.at("ok").get<bool>());
  EXPECT_EQ(result.at("outputs").size(), 6U);
}

TEST(Program, ParityFailsWithOneWhereANumberDiffers) {
  const testing::TemporaryFolder folder;
  const auto file = io::SafeTensors::load(std::string(MHLA_TEST_DATA) + "/nlp_op_256.safetensors");
  auto tensors = file.tensors();
  std::vector<std::byte> changed(tensors["out/o"].data.begin(), tensors["out/o"].data.end());
  changed[403] = std::byte{0x41};
  tensors["out/o"].data = changed;
  io::write_file(folder / "wrong.safetensors", io::encode_safetensors(tensors, file.metadata()));
  const Finished run = run_mhla("parity '" + (folder / "wrong.safetensors").string() + "'");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("FAILED"), std::string::npos) << run.out;
}

TEST(Program, ADamagedFileFailsWithOneAndIsNamed) {
  const testing::TemporaryFolder folder;
  io::write_file(folder / "damaged", "12345678{");
  const Finished run = run_mhla("parity '" + (folder / "damaged").string() + "' 2>&1");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("damaged: header"), std::string::npos) << run.out;
}

TEST(Program, BenchRowsHaveTheAgreedFields) {
  const Finished run = run_mhla("bench op --quick --json - 2>/dev/null");
  ASSERT_EQ(run.exit_code, 0);
  const io::Json rows = io::parse_json(run.out, "output");
  ASSERT_TRUE(rows.is_array());
  const std::set<std::string> expected = {"shape",      "device",      "dtype",  "pass",       "impl",
                                          "normalizer", "ms_median",   "ms_p10", "ms_p90",     "floor_ms",
                                          "rel_err",    "extra_bytes", "gflops", "peak_gflops"};
  std::set<std::string> impls;
  std::set<std::string> passes;
  for (const io::Json& row : rows) {
    std::set<std::string> keys;
    for (const auto& item : row.items()) keys.insert(item.key());
    EXPECT_EQ(keys, expected);
    impls.insert(row.at("impl"));
    passes.insert(row.at("pass"));
    EXPECT_EQ(row.at("device"), "cpu");
    EXPECT_GT(row.at("ms_median").get<double>(), 0.0);
    EXPECT_LE(row.at("ms_p10").get<double>(), row.at("ms_median").get<double>());
    EXPECT_LE(row.at("ms_median").get<double>(), row.at("ms_p90").get<double>());
    EXPECT_GT(row.at("gflops").get<double>(), 0.0);
    EXPECT_GT(row.at("peak_gflops").get<double>(), 0.0);
    EXPECT_GT(row.at("floor_ms").get<double>(), 0.0);
    EXPECT_LE(row.at("rel_err").get<double>(), 1e-5) << row.dump();
  }
  EXPECT_EQ(impls, (std::set<std::string>{"mhla", "composed", "linear", "sdpa"}));
  EXPECT_EQ(passes, (std::set<std::string>{"fwd", "fwd+bwd"}));
}

TEST(Program, BenchRunsEveryTypeAndNormalizer) {
  for (const char* arguments : {"--dtype bf16", "--dtype f16", "--dtype f64", "--normalizer none,paper,authors"}) {
    const Finished run = run_mhla(std::string("bench op --quick --shape tiny --json - 2>/dev/null ") + arguments);
    EXPECT_EQ(run.exit_code, 0) << arguments;
    EXPECT_GE(io::parse_json(run.out, "output").size(), 8U) << arguments;
  }
}

TEST(Program, BenchSweepGivesTheExponent) {
  const Finished run =
      run_mhla("bench op --quick --n-sweep --n-max 4096 --impl mhla --passes fwd --json - 2>/dev/null");
  ASSERT_EQ(run.exit_code, 0);
  const io::Json rows = io::parse_json(run.out, "output");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_TRUE(rows[0].at("exponent").is_number());
}

TEST(Program, AnalyzeWritesPicturesAndCurves) {
  const testing::TemporaryFolder folder;
  const Finished run = run_mhla("analyze --grid 12 12 --blocks 3 3 --dim 8 --out '" + (folder / "out").string() +
                                "' --json '" + (folder / "result.json").string() + "'");
  EXPECT_EQ(run.exit_code, 0);
  for (const char* name : {"softmax.png", "linear.png", "mhla.png", "rank.svg", "entropy.svg"})
    EXPECT_GT(std::filesystem::file_size(folder / "out" / name), 100U) << name;
  const auto bytes = io::read_file(folder / "result.json");
  const io::Json result = io::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "result");
  EXPECT_TRUE(result.at("ok").get<bool>());
  EXPECT_EQ(result.at("attention")[1].at("rank"), 8);
}

TEST(Program, AnalyzeReadsTokensAndWritesNothingForBadOnes) {
  const testing::TemporaryFolder folder;
  std::vector<float> values(36 * 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((i * 7919) % 101) / 50.0F - 1.0F;
  const auto bytes = std::as_bytes(std::span(values));
  const io::SafeTensor tokens{"F32", {36, 4}, bytes};
  const std::string out = " --blocks 2 2 --out '" + (folder / "out").string() + "'";
  io::write_file(folder / "good", io::encode_safetensors({{"q", tokens}, {"k", tokens}}));
  const std::string good = " --input '" + (folder / "good").string() + "'";
  EXPECT_EQ(run_mhla("analyze --grid 5 7" + out + good + " 2>/dev/null").exit_code, 2);
  io::write_file(folder / "bad", io::encode_safetensors({{"q", tokens}}));
  EXPECT_EQ(run_mhla("analyze --grid 6 6" + out + " --input '" + (folder / "bad").string() + "' 2>/dev/null").exit_code,
            1);
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  EXPECT_EQ(run_mhla("analyze --grid 6 6" + out + good).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder / "out/mhla.png"));
}

TEST(Program, SelftestPassesHere) {
  const Finished run = run_mhla("selftest --json - 2>/dev/null");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_TRUE(io::parse_json(run.out, "output").at("ok").get<bool>());
}

TEST(Program, DemoWritesASelfContainedReport) {
  const testing::TemporaryFolder folder;
  const Finished run = run_mhla("demo --quick --out '" + folder.path().string() + "' 2>/dev/null");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_NE(run.out.find("report.html"), std::string::npos);
  const auto bytes = io::read_file(folder / "report.html");
  const std::string page(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_EQ(page.find("src=\"http"), std::string::npos);
  for (const char* broken : {">nan", " nan", ",nan", "\"nan", ">inf", " inf", ",inf", "\"inf"})
    EXPECT_EQ(page.find(broken), std::string::npos) << broken;
}

TEST(Program, DevicesAndVersionSpeakJson) {
  const io::Json devices = io::parse_json(run_mhla("devices --json - 2>/dev/null").out, "devices");
  EXPECT_EQ(devices.at("devices")[0].at("device"), "cpu");
  EXPECT_GE(devices.at("devices")[0].at("threads").get<int>(), 1);
  const io::Json version = io::parse_json(run_mhla("version --json - 2>/dev/null").out, "version");
  for (const char* key : {"mhla", "compiler", "torch", "isa"})
    EXPECT_FALSE(version.at(key).get<std::string>().empty()) << key;
}

TEST(Program, AJsonFileThatCannotBeWrittenFailsWithOne) {
  const Finished run = run_mhla("version --json /proc/nowhere/x.json 2>&1");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.out.find("/proc/nowhere"), std::string::npos) << run.out;
}

}  // namespace
}  // namespace mhla
