// Characters of UTF-8, and how much of a broken one is told apart.
#include "io/utf8.hpp"

#include <gtest/gtest.h>

#include <string>

namespace mhla::io {
namespace {

using State = Utf8Character::State;

struct Beginning {
  std::string text;
  char32_t code;
  int size;
  State state;
};

TEST(Utf8, TheFirstCharacterIsRead) {
  for (const Beginning& each : {
           Beginning{"a", U'a', 1, State::complete},
           Beginning{std::string("\0b", 2), U'\0', 1, State::complete},
           Beginning{"\xC3\xA9t", U'\u00E9', 2, State::complete},
           Beginning{"\xE6\x97\xA5", U'\u65E5', 3, State::complete},
           Beginning{"\xF0\x9F\x8C\xB2.", U'\U0001F332', 4, State::complete},
           Beginning{"\xF4\x8F\xBF\xBF", U'\U0010FFFF', 4, State::complete},
           Beginning{"\xC3", 0xFFFD, 1, State::cut},
           Beginning{"\xE6\x97", 0xFFFD, 2, State::cut},
           Beginning{"\xF0\x9F\x8C", 0xFFFD, 3, State::cut},
           Beginning{"\xA9", 0xFFFD, 1, State::invalid},  // nothing that it could go on from
           Beginning{"\xC3t", 0xFFFD, 1, State::invalid},
           Beginning{"\xE6\x97t", 0xFFFD, 2, State::invalid},
           Beginning{"\xF0\x9F\x8C\xC3", 0xFFFD, 3, State::invalid},
           Beginning{"\xC0\x80", 0xFFFD, 1, State::invalid},  // overlong
           Beginning{"\xE0\x80\x80", 0xFFFD, 1, State::invalid},
           Beginning{"\xED\xA0\x80", 0xFFFD, 1, State::invalid},      // a surrogate
           Beginning{"\xF4\x90\x80\x80", 0xFFFD, 1, State::invalid},  // above U+10FFFF
           Beginning{"\xFF", 0xFFFD, 1, State::invalid},
       }) {
    const Utf8Character character = first_character(each.text);
    EXPECT_EQ(character.code, each.code) << each.text;
    EXPECT_EQ(character.size, each.size) << each.text;
    EXPECT_EQ(character.state, each.state) << each.text;
  }
}

}  // namespace
}  // namespace mhla::io
