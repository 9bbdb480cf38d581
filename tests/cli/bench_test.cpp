// What benchmarks are made of: the race, the tables, the chart and the choice of softmax kernels.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "cli/bench/chart.hpp"
#include "cli/bench/run.hpp"
#include "cli/bench/tables.hpp"
#include "cli/support/measure.hpp"

namespace mhla::cli {
namespace {

bench::Row row(const std::string& shape, const std::string& pass, const std::string& impl,
               const std::string& normalizer, double ms) {
  bench::Row result;
  result.shape = shape;
  result.sizes = "(1, 2, 3, 4, 5)";
  result.device = "cuda";
  result.device_name = "a GPU";
  result.dtype = "bf16";
  result.pass = pass;
  result.impl = impl;
  result.normalizer = normalizer;
  result.ms_median = ms;
  result.floor_ms = 2.0;
  return result;
}

std::vector<bench::Row> some_rows() {
  return {row("video", "fwd", "mhla", "none", 4.0),           row("video", "fwd", "composed", "none", 20.0),
          row("video", "fwd", "sdpa-flash", "softmax", 10.0), row("video", "fwd", "mhla", "paper", 5.0),
          row("video", "fwd", "composed", "paper", 6.0),      row("video", "fwd+bwd", "mhla", "none", 7.0)};
}

TEST(Bench, SoftmaxStandsBesideEveryNormalizer) {
  const auto comparisons = bench::compare(some_rows());
  ASSERT_EQ(comparisons.size(), 3U);
  EXPECT_EQ(comparisons[0].best_peer_ms(), 10.0);
  EXPECT_EQ(comparisons[1].normalizer, "paper");
  EXPECT_EQ(comparisons[1].ms.at("sdpa-flash"), 10.0);
  EXPECT_EQ(comparisons[1].best_peer_ms(), 6.0);
  EXPECT_TRUE(std::isinf(comparisons[2].best_peer_ms()));
  EXPECT_EQ(bench::compared_impls(some_rows()), (std::vector<std::string>{"composed", "sdpa-flash", "mhla"}));
}

TEST(Bench, TablesGiveTheShareOfTheFloorAndTheRatioToTheBestPeer) {
  const std::string text = bench::comparison_tables(some_rows());
  for (const char* part : {"fwd, bf16", "fwd+bwd, bf16", "video (1, 2, 3, 4, 5)", "50 %", "2.50x", "40 %", "1.20x"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  auto without_ours = some_rows();
  std::erase_if(without_ours, [](const bench::Row& r) { return r.impl == "mhla"; });
  EXPECT_EQ(bench::comparison_tables(without_ours).find('%'), std::string::npos);
}

TEST(Bench, TheChartHasADotForEveryTimeAndTheLegend) {
  const std::string svg = bench::draw_chart(some_rows(), "a <GPU>");
  std::size_t dots = 0;
  for (auto at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++dots;
  EXPECT_EQ(dots, 3U + 3U + 3U + 1U);  // legend, both normalisers with softmax, the pass with backward
  EXPECT_NE(svg.find("a &lt;GPU&gt;"), std::string::npos);
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
}

TEST(Bench, RowsOfAGpuNameIt) {
  const io::Json json = some_rows().front().json();
  EXPECT_EQ(json.at("device"), "cuda");
  EXPECT_EQ(json.at("device_name"), "a GPU");
  EXPECT_TRUE(json.contains("host_us"));
}

TEST(Bench, EveryContestantRunsLongEnough) {
  int quick = 0;
  int slow = 0;
  std::vector<Contestant> contestants = {{[&] { ++quick; }}, {[&] {
                                           ++slow;
                                           std::this_thread::sleep_for(std::chrono::milliseconds(2));
                                         }}};
  race(contestants, Stopwatch(torch::kCPU), 0.01);
  EXPECT_EQ(contestants[0].seconds.size(), static_cast<std::size_t>(quick));
  EXPECT_EQ(contestants[1].seconds.size(), static_cast<std::size_t>(slow));
  EXPECT_GE(quick, 7);
  EXPECT_GE(slow, 1);
  EXPECT_LE(quick, 1000);
}

TEST(Bench, OneSoftmaxKernelIsLeftAndTheOthersComeBack) {
  const auto x = torch::randn({1, 16, 2, 8});
  const Tokens tokens = {x, x, x, torch::ones({1, 1})};
  const torch::Tensor any = bench::softmax_attention(tokens, true);
  EXPECT_TRUE(torch::allclose(bench::softmax_attention(tokens, true, bench::SoftmaxKernel::flash), any, 1e-5, 1e-6));
  EXPECT_THROW(bench::softmax_attention(tokens, true, bench::SoftmaxKernel::cudnn), std::exception);
  EXPECT_TRUE(at::globalContext().userEnabledCuDNNSDP());
  EXPECT_TRUE(at::globalContext().userEnabledFlashSDP());
  EXPECT_TRUE(at::globalContext().userEnabledMathSDP());
  EXPECT_TRUE(torch::equal(bench::softmax_attention(tokens, true), any));
}

TEST(Bench, APeerThatCannotRunIsLeftOutWithTheReason) {
  bench::Settings settings;
  settings.impls = {"mhla", "sdpa-cudnn", "sdpa-flash", "sdpa-efficient"};
  settings.min_seconds = 1e-4;
  settings.bandwidth = 1e9;
  std::vector<std::string> left_out;
  const auto rows = bench::run_benchmark(bench::shape_named("tiny"), settings,
                                         [&](const std::string& why) { left_out.push_back(why); });
  ASSERT_EQ(left_out.size(), 1U);
  EXPECT_TRUE(left_out[0].starts_with("sdpa-cudnn at tiny: ")) << left_out[0];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].impl, "sdpa-flash");
  EXPECT_LE(rows[1].rel_err, 1e-5);
}

TEST(Bench, ShapesOnAGpuHaveItsBatch) {
  const bench::Shape shape = bench::shape_named("causal").on_gpu();
  EXPECT_EQ(shape.problem.device, Device::cuda);
  EXPECT_EQ(shape.sizes(), "(16, 4, 2048, 128/256, 32)");
  EXPECT_EQ(bench::shape_named("256px").on_gpu().sizes(), "(256, 6, 256, 64, 16)");
}

}  // namespace
}  // namespace mhla::cli
