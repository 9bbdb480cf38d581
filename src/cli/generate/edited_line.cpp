// Places in a text are bytes where a character begins.
#include "cli/generate/edited_line.hpp"

#include <algorithm>
#include <utility>

namespace mhla::cli {
namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

}  // namespace

std::size_t EditedLine::before(std::size_t place) const {
  if (place > 0) --place;
  while (place > 0 && !begins_character(text_[place])) --place;
  return place;
}

std::size_t EditedLine::after(std::size_t place) const {
  if (place < text_.size()) ++place;
  while (place < text_.size() && !begins_character(text_[place])) ++place;
  return place;
}

void EditedLine::erase(std::size_t begin, std::size_t end) {
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

void EditedLine::set(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

void EditedLine::press(Key key, std::string_view inserted) {
  switch (key) {
    case Key::text:
      text_.insert(cursor_, inserted);
      cursor_ += inserted.size();
      break;
    case Key::left:
      cursor_ = before(cursor_);
      break;
    case Key::right:
      cursor_ = after(cursor_);
      break;
    case Key::begin:
      cursor_ = 0;
      break;
    case Key::end:
      cursor_ = text_.size();
      break;
    case Key::erase_before:
      erase(before(cursor_), cursor_);
      break;
    case Key::erase_after:
      erase(cursor_, after(cursor_));
      break;
    case Key::erase_word: {
      std::size_t begin = cursor_;
      while (begin > 0 && text_[begin - 1] == ' ') --begin;
      while (begin > 0 && text_[begin - 1] != ' ') --begin;
      erase(begin, cursor_);
      break;
    }
    case Key::erase_begin:
      erase(0, cursor_);
      break;
    case Key::erase_end:
      erase(cursor_, text_.size());
      break;
    default:
      break;
  }
}

EditedLine::View EditedLine::view(std::size_t columns) const {
  const std::size_t room = std::max<std::size_t>(2, columns);
  const std::size_t place = characters(std::string_view(text_).substr(0, cursor_));
  const std::size_t skipped = place < room ? 0 : place - room + 1;
  std::size_t begin = 0, end = 0;
  for (std::size_t i = 0; i < skipped; ++i) begin = after(begin);
  end = begin;
  for (std::size_t i = 0; i < room && end < text_.size(); ++i) end = after(end);
  return {text_.substr(begin, end - begin), place - skipped};
}

}  // namespace mhla::cli
