// JSON is read strictly, and in a time that grows with its length.
#include "io/json.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "mhla/types.hpp"
#include "support/expect_error.hpp"
#include "support/growth.hpp"

namespace mhla::io {
namespace {

TEST(Json, ValuesComeBackInTheirOrder) {
  const std::string text = R"({"z":[1,-2,3.5,true,null,"x",[],{}],"a":{"c":{"b":"\u00e9"}}})";
  EXPECT_EQ(parse_json(text, "a.json").dump(), R"({"z":[1,-2,3.5,true,null,"x",[],{}],"a":{"c":{"b":"é"}}})");
  EXPECT_EQ(parse_json("7", "a.json"), 7);
}

TEST(Json, WhatIsNotStrictJsonIsRefused) {
  for (const char* text : {"", "{", "[1,]", "{}{}", "nan", "1e999", "\"\xff\"", "'a'"})
    expect_error([&] { parse_json(text, "a.json"); }, {"a.json: not valid JSON: "});
  expect_error([] { parse_json(R"({"a":1,"b":{"a":2},"a":3})", "a.json"); }, {"a.json: key \"a\" appears twice"});
}

TEST(Json, DepthIsLimitedBeforeItIsReached) {
  EXPECT_EQ(parse_json("[[[1]]]", "a.json", 3).dump(), "[[[1]]]");
  expect_error([] { parse_json("[[[1]]]", "a.json", 2); }, {"a.json: nested deeper than 2 levels"});
  expect_error([] { parse_json(std::string(10'000'000, '['), "a.json"); }, {"a.json: nested deeper than 64 levels"});
}

TEST(Json, TimeDoesNotGrowWithTheSquareOfTheKeys) {
  const auto read = [](int keys) {
    std::string text = "{";
    for (int i = 0; i < keys; ++i) text += "\"key" + std::to_string(i) + "\":0,";
    text.back() = '}';
    EXPECT_EQ(parse_json(text, "a.json").size(), static_cast<std::size_t>(keys));
  };
  EXPECT_LT(mhla::testing::growth_of_eightfold(read, 5000), 30.0);
}

template <typename Value>
bool reads(const char* text) {
  Value value{};
  return read_exactly(parse_json(text, "a.json"), value);
}

TEST(Json, NumbersAreNotConverted) {
  EXPECT_TRUE(reads<std::int64_t>("-3") && reads<std::int64_t>("9223372036854775807"));
  for (const char* text : {"1.5", "1.0", "true", "9223372036854775808", "1e3", "\"1\"", "null", "[1]"})
    EXPECT_FALSE(reads<std::int64_t>(text)) << text;
  EXPECT_TRUE(reads<double>("1.5") && reads<double>("2") && reads<float>("-1"));
  for (const char* text : {"true", "\"1\"", "null"}) EXPECT_FALSE(reads<double>(text) || reads<float>(text)) << text;
  EXPECT_TRUE(reads<bool>("false"));
  EXPECT_FALSE(reads<bool>("0"));
  EXPECT_FALSE(reads<std::string>("1"));
  EXPECT_TRUE(reads<std::vector<std::int64_t>>("[1,2]"));
  EXPECT_FALSE(reads<std::vector<std::int64_t>>("[1,2.5]") || reads<std::vector<std::int64_t>>("1"));
  EXPECT_TRUE((reads<std::array<float, 2>>("[1,2]")));
  EXPECT_FALSE((reads<std::array<float, 2>>("[1]") || reads<std::array<float, 2>>("[1,2,3]")));
}

}  // namespace
}  // namespace mhla::io
