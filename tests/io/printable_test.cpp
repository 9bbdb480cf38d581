// Names as they may be shown.
#include "io/printable.hpp"

#include <gtest/gtest.h>

#include "io/file.hpp"
#include "io/json.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::io {
namespace {

struct Name {
  std::string bytes, shown;
  bool utf8;
};

TEST(Printable, EscapesControlCharactersAndWhatIsNotUtf8) {
  for (const Name& name : {
           Name{"", "", true},
           Name{"Forest 1", "Forest 1", true},
           Name{"caf\xC3\xA9 \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x8C\xB2",
                "caf\xC3\xA9 \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x8C\xB2", true},
           Name{"\x1b[31mred\x07", "\\x1b[31mred\\x07", true},
           Name{"a\nb\tc\x7f", "a\\x0ab\\x09c\\x7f", true},
           Name{std::string("a\0b", 3), "a\\x00b", true},
           Name{"\xC2\x9B"
                "2J\xC2\xA0",
                "\\xc2\\x9b"
                "2J\xC2\xA0",
                true},  // the one-letter form of ESC [
           Name{"caf\xE9", "caf\\xe9", false},
           Name{"\xE9t\xE9", "\\xe9t\\xe9", false},
           Name{"\x80\xBF", "\\x80\\xbf", false},
           Name{"\xC0\xAF \xE0\x80\xAF \xF0\x80\x80\xAF", "\\xc0\\xaf \\xe0\\x80\\xaf \\xf0\\x80\\x80\\xaf", false},
           Name{"\xED\xA0\x80", "\\xed\\xa0\\x80", false},           // a surrogate
           Name{"\xF4\x90\x80\x80", "\\xf4\\x90\\x80\\x80", false},  // above U+10FFFF
           Name{"cut \xE6\x97", "cut \\xe6\\x97", false},
       }) {
    EXPECT_EQ(printable(name.bytes), name.shown);
    EXPECT_EQ(is_utf8(name.bytes), name.utf8) << name.shown;
    EXPECT_EQ(printable(name.shown), name.shown);
  }
  EXPECT_EQ(printable("a\nb\tc\r", "\n\t"), "a\nb\tc\\x0d");
}

TEST(WriteJson, NamesThatAreNotUtf8AreEscaped) {
  const testing::TemporaryFolder folder;
  write_json((folder / "names.json").string(), {{"caf\xE9", {1.5, "\xFF", {{"good", "caf\xC3\xA9\x1b"}}}}});
  const auto bytes = read_file(folder / "names.json");
  const Json read = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "names.json");
  EXPECT_EQ(read, Json({{"caf\\xe9", {1.5, "\\xff", {{"good", "caf\xC3\xA9\x1b"}}}}}));
}

}  // namespace
}  // namespace mhla::io
