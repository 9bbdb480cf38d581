// A line of text with a cursor, as keys change it. No terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mhla::cli {

enum class Key {
  text,  // to insert
  left,
  right,
  begin,
  end,
  earlier,  // lines of before
  later,
  erase_before,
  erase_after,
  erase_word,   // before the cursor
  erase_begin,  // all before the cursor
  erase_end,    // all after it
  enter,
  give_up,   // Ctrl-C
  finished,  // Ctrl-D
  other
};

class EditedLine {
 public:
  const std::string& text() const { return text_; }
  void set(std::string text);  // the cursor behind it
  void press(Key key, std::string_view inserted = {});

  // What a terminal shows in `columns` columns, and in which of them the cursor is. A character is one column.
  struct View {
    std::string text;
    std::size_t cursor;
  };
  View view(std::size_t columns) const;

 private:
  std::size_t before(std::size_t place) const;  // where the character before that begins
  std::size_t after(std::size_t place) const;
  void erase(std::size_t begin, std::size_t end);

  std::string text_;  // UTF-8
  std::size_t cursor_ = 0;
};

}  // namespace mhla::cli
