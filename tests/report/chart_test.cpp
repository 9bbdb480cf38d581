// Charts, colours and the report page.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "io/image.hpp"
#include "report/axis.hpp"
#include "report/duration.hpp"
#include "report/heat_map.hpp"
#include "report/html.hpp"
#include "report/line_chart.hpp"
#include "report/text.hpp"

namespace mhla::report {
namespace {

TEST(Axis, CoversItsValuesBetweenTheEndTicks) {
  for (const bool logarithmic : {false, true})
    for (const auto& values : std::vector<std::vector<double>>{{1, 1000}, {0.37, 0.52}, {5, 5}, {256, 1048576}, {3}}) {
      const Axis axis(values, logarithmic, false);
      ASSERT_GE(axis.ticks().size(), 2U);
      EXPECT_DOUBLE_EQ(axis.share(axis.ticks().front()), 0.0);
      EXPECT_DOUBLE_EQ(axis.share(axis.ticks().back()), 1.0);
      for (const double value : values) {
        EXPECT_GE(axis.share(value), -1e-9);
        EXPECT_LE(axis.share(value), 1.0 + 1e-9);
      }
    }
}

TEST(Axis, IgnoresValuesWithoutAPlace) {
  const double infinite = std::numeric_limits<double>::infinity();
  const Axis axis({0.0, -3.0, infinite, std::nan(""), 10.0, 100.0}, true, false);
  EXPECT_FALSE(axis.has_place_for(0.0));
  EXPECT_FALSE(axis.has_place_for(infinite));
  EXPECT_DOUBLE_EQ(axis.ticks().front(), 10.0);
  EXPECT_DOUBLE_EQ(axis.ticks().back(), 100.0);
  EXPECT_GE(Axis({}, false, true).ticks().size(), 2U);
}

TEST(LineChart, ShowsEverySeriesAndEscapesText) {
  LineChart chart{"a < b", "x", "y", true, true};
  chart.series = {{"first & last", {1, 10, 100}, {2, 20, 0.0}}, {"bound", {1, 100}, {5, 5}, true}};
  const std::string svg = chart.svg();
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_NE(svg.find("first &amp; last"), std::string::npos);
  EXPECT_NE(svg.find("stroke-dasharray"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
  std::size_t lines = 0;
  for (std::size_t at = svg.find("<polyline"); at != std::string::npos; at = svg.find("<polyline", at + 1)) ++lines;
  EXPECT_EQ(lines, 2U);
}

TEST(ShortNumber, NamesThousandsAndMillions) {
  EXPECT_EQ(short_number(950), "950");
  EXPECT_EQ(short_number(1500), "1.5k");
  EXPECT_EQ(short_number(1048576), "1.05M");
  EXPECT_EQ(short_number(0.25), "0.25");
}

TEST(HeatMap, AveragesLargeMatricesAndEnlargesSmallOnes) {
  const std::vector<double> uniform(6 * 6, 1.0 / 6.0);
  const io::Image small = io::decode_image(heat_map_png({uniform, 6, 6}, 4), "small");
  const io::Image large = io::decode_image(heat_map_png({uniform, 6, 6}, 20), "large");
  EXPECT_EQ(small.width, 4);
  EXPECT_EQ(large.width, 18);
  const auto middle = colour(0.5);  // uniform, halfway between a tenth and ten times
  for (const io::Image* image : {&small, &large})
    for (std::size_t i = 0; i < image->rgb.size(); ++i) EXPECT_EQ(image->rgb[i], middle[i % 3]) << i;
}

TEST(Text, NumbersAndDurationsReadWell) {
  EXPECT_EQ(grouped(65536), "65,536");
  EXPECT_EQ(three_digits(12.34), "12.3");
  EXPECT_EQ(duration(42.4), "42 s");
  EXPECT_EQ(duration(185), "3 min 05 s");
  EXPECT_EQ(duration(7800), "2 h 10 min");
}

TEST(Text, NamesInTablesAndPagesAreEscaped) {
  const std::string lines = table({"name", "count"}, {{"\x1b[31m\n\xFF", "1"}, {"short", "22"}});
  EXPECT_EQ(lines,
            "name              count\n"
            "-----------------------\n"
            "\\x1b[31m\\x0a\\xff      1\n"
            "short                22\n");
  EXPECT_EQ(html::escape("<\xE9\x1b>\n"), "&lt;\\xe9\\x1b&gt;\n");
}

TEST(Colour, GetsBrighterAllTheWay) {
  const auto luminance = [](double t) {
    const auto rgb = colour(t);
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
  };
  for (int i = 0; i < 50; ++i) EXPECT_LT(luminance(i / 50.0), luminance((i + 1) / 50.0)) << i;
  EXPECT_EQ(colour(-1.0), colour(0.0));
  EXPECT_EQ(colour(std::nan("")), colour(0.0));
  EXPECT_EQ(colour(7.0), colour(1.0));
}

TEST(Report, IsOneFileThatNeedsNothingElse) {
  html::Report report("Title & more", "machine");
  report.section("Finding <1>");
  report.paragraph("text");
  report.table({"a", "b"}, {{"1", "2"}});
  report.pictures({{heat_map_png({std::vector<double>(16, 0.25), 4, 4}), "map", "caption"}}, colour_scale_svg(),
                  "about");
  report.chart(LineChart{"t", "x", "y", false, false, {{"s", {0, 1}, {0, 1}}}}.svg(), "chart");
  const std::string page = report.page();
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  EXPECT_NE(page.find("Finding &lt;1&gt;"), std::string::npos);
  EXPECT_NE(page.find("data:image/png;base64,iVBORw0KGgo"), std::string::npos);
  for (const char* outside : {"src=\"http", "href=", "url(", "<script", "@import"})
    EXPECT_EQ(page.find(outside), std::string::npos);
  for (const char* tag : {"section", "figure", "table", "main", "svg"}) {
    const auto count = [&](const std::string& text) {
      std::size_t found = 0;
      for (std::size_t at = page.find(text); at != std::string::npos; at = page.find(text, at + 1)) ++found;
      return found;
    };
    EXPECT_EQ(count(std::string("<") + tag + ">") + count(std::string("<") + tag + " "),
              count(std::string("</") + tag + ">"))
        << tag;
  }
}

}  // namespace
}  // namespace mhla::report
