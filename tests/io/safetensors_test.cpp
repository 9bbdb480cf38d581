// The safetensors reader takes valid files and refuses everything else with a reason.
#include "io/safetensors.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "io/file.hpp"
#include "mhla/types.hpp"
#include "support/growth.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::io {
namespace {

std::vector<std::byte> to_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// A file with this header text and `data` zero bytes, its length field right.
std::vector<std::byte> file_with(std::string_view header, std::size_t data) {
  std::vector<std::byte> bytes(8);
  const std::uint64_t length = header.size();
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(length >> (8 * i) & 0xFFU);
  const auto text = to_bytes(header);
  bytes.insert(bytes.end(), text.begin(), text.end());
  bytes.resize(bytes.size() + data);
  return bytes;
}

std::vector<std::byte> length_field(std::uint64_t length) {
  std::vector<std::byte> bytes(8);
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(length >> (8 * i) & 0xFFU);
  return bytes;
}

std::vector<std::byte> valid_file() {
  const auto a = to_bytes("abcdefgh");
  const auto b = to_bytes("0123456789ab");
  return encode_safetensors({{"a", {"F32", {2}, a}}, {"b", {"U8", {3, 4}, b}}, {"empty", {"F64", {0, 7}, {}}}},
                            {{"config", "{\"kind\": \"test\"}"}});
}

TEST(Safetensors, WhatIsEncodedIsRead) {
  const SafeTensors file = SafeTensors::parse(valid_file(), "test");
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.metadata().at("config"), "{\"kind\": \"test\"}");
  EXPECT_EQ(file.at("b").dtype, "U8");
  EXPECT_EQ(file.at("b").shape, (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(std::memcmp(file.at("b").data.data(), "0123456789ab", 12), 0);
  EXPECT_EQ(file.at("a").data.size(), 8U);
  EXPECT_TRUE(file.at("empty").data.empty());
}

TEST(Safetensors, AFileOnDiskIsReadAndNamedInErrors) {
  const testing::TemporaryFolder folder;
  write_file(folder / "x.safetensors", valid_file());
  const SafeTensors file = SafeTensors::load(folder / "x.safetensors");
  try {
    file.at("absent");
    FAIL() << "a missing tensor was found";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("x.safetensors"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("absent"), std::string::npos);
  }
}

TEST(Safetensors, ACopyOutlivesItsOrigin) {
  auto original = std::make_unique<SafeTensors>(SafeTensors::parse(valid_file(), "test"));
  const SafeTensors copy = *original;
  original.reset();
  EXPECT_EQ(std::memcmp(copy.at("a").data.data(), "abcdefgh", 8), 0);
}

TEST(Safetensors, AMissingFileAndAFolderAreErrors) {
  const testing::TemporaryFolder folder;
  EXPECT_THROW(SafeTensors::load(folder / "nothing"), Error);
  EXPECT_THROW(SafeTensors::load(folder.path()), Error);
}

TEST(Safetensors, TimeDoesNotGrowWithTheSquareOfTheTensors) {
  const auto read = [](int tensors) {
    std::string header = "{";
    for (int i = 0; i < tensors; ++i)
      header += "\"t" + std::to_string(i) + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(i) +
                "," + std::to_string(i + 1) + "]},";
    header.back() = '}';
    const auto count = static_cast<std::size_t>(tensors);
    EXPECT_EQ(SafeTensors::parse(file_with(header, count), "many").tensors().size(), count);
  };
  EXPECT_LT(testing::growth_of_eightfold(read, 2500), 30.0);
}

// Of a terabyte without content only the beginning is read.
TEST(Safetensors, AHugeFileOfSomethingElseIsRefusedByItsFirstBytes) {
  const testing::TemporaryFolder folder;
  write_file(folder / "huge", std::string_view("\0", 1));
  std::filesystem::resize_file(folder / "huge", std::uintmax_t{1} << 40);
  try {
    SafeTensors::load(folder / "huge");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("huge: no safetensors file"), std::string::npos) << error.what();
  }
}

struct BadFile {
  const char* name;
  std::vector<std::byte> bytes;
  const char* reason;  // part of the message

  friend std::ostream& operator<<(std::ostream& stream, const BadFile& file) { return stream << file.name; }
};

class BadSafetensors : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadSafetensors, IsRefusedWithAReason) {
  try {
    SafeTensors::parse(GetParam().bytes, "bad.safetensors");
    FAIL() << "accepted";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("bad.safetensors: ")) << message;
    EXPECT_NE(message.find(GetParam().reason), std::string::npos) << message;
  }
}

std::vector<BadFile> bad_files() {
  const std::string good_a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const auto one = [](const std::string& entry, std::size_t data = 8) {
    return file_with("{\"a\":" + entry + "}", data);
  };
  return {
      {"Empty", {}, "too few"},
      {"ShorterThanTheLength", to_bytes("1234567"), "too few"},
      {"HeaderLongerThanFile", length_field(1), "header of 1 bytes in a file of 8"},
      {"HeaderOverLimit", length_field(100'000'001), "at most"},
      {"HeaderLengthHuge", length_field(~std::uint64_t{0}), "at most"},
      {"HeaderEmpty", length_field(0), "does not begin with '{'"},
      {"HeaderLeadingSpace", file_with(" {}", 0), "does not begin with '{'"},
      {"HeaderIsAnArray", file_with("[]", 0), "does not begin with '{'"},
      {"HeaderCutOff", file_with("{\"a\":", 0), "not valid JSON"},
      {"HeaderTwoValues", file_with("{}{}", 0), "not valid JSON"},
      {"HeaderNotUtf8", file_with("{\"\xff\":1}", 0), "not valid JSON"},
      {"HeaderNestedDeeply", file_with("{\"a\":[[[[[[[[1]]]]]]]]}", 0), "nested deeper"},
      {"DuplicateTensor", file_with("{" + good_a + "," + good_a + "}", 8), "key \"a\" appears twice"},
      {"DuplicateField", one(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})"), "appears twice"},
      {"EntryIsANumber", one("3"), "not an object"},
      {"DtypeMissing", one(R"({"shape":[2],"data_offsets":[0,8]})"), "\"dtype\" is missing"},
      {"ShapeMissing", one(R"({"dtype":"F32","data_offsets":[0,8]})"), "\"shape\" is missing"},
      {"OffsetsMissing", one(R"({"dtype":"F32","shape":[2]})"), "\"data_offsets\" is missing"},
      {"FieldUnknown", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1})"), "unknown key \"x\""},
      {"DtypeUnknown", one(R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})"), "dtype \"F33\" is unknown"},
      {"DtypeNotText", one(R"({"dtype":32,"shape":[2],"data_offsets":[0,8]})"), "dtype is number"},
      {"ShapeNotAnArray", one(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})"), "shape is number"},
      {"ShapeNegative", one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), "not a nonnegative"},
      {"ShapeFraction", one(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), "not a nonnegative"},
      {"ShapeTooLarge", one(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]})"),
       "not a nonnegative"},
      {"ShapeOverflows", one(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"), "overflows"},
      {"ShapeOverflowsToTheRightSize", one(R"({"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]})"),
       "overflows"},
      {"ShapeOverflowsBesideAZero",
       file_with(R"({"a":{"dtype":"F32","shape":[0,4611686018427387904,8],"data_offsets":[0,0]}})", 0), "overflows"},
      {"ShapeDisagrees", one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
       "span 8 bytes, but F32 of shape [3] has 12"},
      {"OffsetsOne", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"), "not [begin, end]"},
      {"OffsetsReversed", one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), "do not lie within"},
      {"OffsetsBeyondTheFile", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 7),
       "do not lie within the 7 data bytes"},
      {"OffsetsNegative", one(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})"), "not a nonnegative"},
      {"GapBeforeTheFirst", one(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})"), "leaving a gap"},
      {"GapBetween", file_with("{" + good_a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}})", 10),
       "leaving a gap"},
      {"Overlap", file_with("{" + good_a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8), "inside"},
      {"BytesLeftOver", file_with("{" + good_a + "}", 9), "1 bytes after the last tensor"},
      {"MetadataNotAnObject", file_with(R"({"__metadata__":1})", 0), "__metadata__ is not an object"},
      {"MetadataNotText", file_with(R"({"__metadata__":{"a":1}})", 0), "not a string"},
  };
}

INSTANTIATE_TEST_SUITE_P(HandMade, BadSafetensors, ::testing::ValuesIn(bad_files()),
                         [](const auto& info) { return std::string(info.param.name); });

// Seeded damage to a valid file: it loads, or throws an Error; never anything else.
TEST(Safetensors, DamagedFilesNeverCrash) {
  const std::vector<std::byte> valid = valid_file();
  std::mt19937 random(20240607);
  const auto pick = [&](std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random); };
  int refused = 0;
  constexpr int kTrials = 20000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<std::byte> bytes = valid;
    for (std::size_t edits = 1 + pick(4); edits > 0 && !bytes.empty(); --edits) {
      const std::size_t place = pick(bytes.size());
      switch (pick(5)) {
        case 0:
          bytes[place] ^= static_cast<std::byte>(1U << pick(8));
          break;
        case 1:
          bytes[place] = static_cast<std::byte>(pick(256));
          break;
        case 2:
          bytes.resize(place);
          break;
        case 3:
          bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(place),
                       static_cast<std::byte>("0123456789{}[]\",:"[pick(17)]));
          break;
        default:
          bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(place));
      }
    }
    try {
      const SafeTensors file = SafeTensors::parse(bytes, "damaged");
      std::size_t total = 0;
      for (const auto& [name, tensor] : file.tensors())
        for (const std::byte value : tensor.data) total += std::to_integer<std::size_t>(value);
      EXPECT_LE(total, 255 * bytes.size());
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, kTrials / 2);
  EXPECT_LT(refused, kTrials);
}

}  // namespace
}  // namespace mhla::io
