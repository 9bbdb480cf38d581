// Keys of a terminal, byte by byte, and the line drawn again after each.
#include "cli/generate/line_reader.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <iostream>
#include <utility>

#include "cli/generate/edited_line.hpp"
#include "io/output_file.hpp"
#include "io/printable.hpp"

namespace mhla::cli {
namespace {

constexpr int kEscapeMilliseconds = 50;  // the rest of a key follows at once

// The terminal gives bytes as they come, without signals, for as long as this lives.
class RawTerminal {
 public:
  RawTerminal() {
    ::tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG | IEXTEN);
    raw.c_iflag &= ~static_cast<tcflag_t>(IXON | ICRNL);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  }
  ~RawTerminal() { ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_); }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  termios before_{};
};

std::optional<char> next_byte() {
  char byte = 0;
  ssize_t count = 0;
  do count = ::read(STDIN_FILENO, &byte, 1);
  while (count < 0 && errno == EINTR);
  return count == 1 ? std::optional(byte) : std::nullopt;
}

std::optional<char> next_byte_of_key() {
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  return ::poll(&input, 1, kEscapeMilliseconds) > 0 ? next_byte() : std::nullopt;
}

// What follows an escape: "[A", "[3~", "OH".
Key escaped_key() {
  std::string sequence;
  for (auto byte = next_byte_of_key(); byte; byte = next_byte_of_key()) {
    sequence += *byte;
    if (sequence.size() > 1 && (std::isalpha(static_cast<unsigned char>(*byte)) != 0 || *byte == '~')) break;
    if (sequence.size() == 1 && *byte != '[' && *byte != 'O') break;
  }
  static constexpr std::array<std::pair<std::string_view, Key>, 15> kKeys{{{"[A", Key::earlier},
                                                                           {"OA", Key::earlier},
                                                                           {"[B", Key::later},
                                                                           {"OB", Key::later},
                                                                           {"[C", Key::right},
                                                                           {"OC", Key::right},
                                                                           {"[D", Key::left},
                                                                           {"OD", Key::left},
                                                                           {"[H", Key::begin},
                                                                           {"OH", Key::begin},
                                                                           {"[1~", Key::begin},
                                                                           {"[F", Key::end},
                                                                           {"OF", Key::end},
                                                                           {"[4~", Key::end},
                                                                           {"[3~", Key::erase_after}}};
  for (const auto& [text, key] : kKeys)
    if (sequence == text) return key;
  return Key::other;
}

constexpr char control(char letter) { return static_cast<char>(letter & 0x1F); }

struct Pressed {
  Key key;
  std::string text{};
};

Pressed control_key(char byte) {
  switch (byte) {
    case control('A'):
      return {Key::begin};
    case control('B'):
      return {Key::left};
    case control('C'):
      return {Key::give_up};
    case control('D'):
      return {Key::finished};
    case control('E'):
      return {Key::end};
    case control('F'):
      return {Key::right};
    case control('H'):
    case '\x7F':
      return {Key::erase_before};
    case control('K'):
      return {Key::erase_end};
    case control('N'):
      return {Key::later};
    case control('P'):
      return {Key::earlier};
    case control('U'):
      return {Key::erase_begin};
    case control('W'):
      return {Key::erase_word};
    case '\x1B':
      return {escaped_key()};
    case '\t':
      return {Key::text, "\t"};
    default:
      return {byte == '\r' || byte == '\n' ? Key::enter : Key::other};
  }
}

Pressed next_key() {
  const auto first = next_byte();
  if (!first) return {Key::finished};
  const auto code = static_cast<unsigned char>(*first);
  if (code < 0x20U || code == 0x7FU) return control_key(*first);
  std::string character(1, *first);
  for (unsigned more = code >= 0xF0U ? 3 : code >= 0xE0U ? 2 : code >= 0xC0U ? 1 : 0; more > 0; --more)
    if (const auto byte = next_byte_of_key()) character += *byte;
  return io::is_utf8(character) ? Pressed{Key::text, character} : Pressed{Key::other};
}

std::size_t columns_of_terminal() {
  winsize size{};
  constexpr std::size_t kUsual = 80;
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

void draw(const std::string& prompt, const EditedLine& line) {
  const std::size_t columns = columns_of_terminal();
  const auto [text, cursor] = line.view(columns > prompt.size() + 1 ? columns - prompt.size() - 1 : 1);
  std::string shown = text;
  for (char& letter : shown)
    if (letter == '\t') letter = ' ';
  io::write_standard_output(fmt::format("\r{}{}\x1B[K\r\x1B[{}C", prompt, shown, prompt.size() + cursor));
}

}  // namespace

LineReader::LineReader(std::string prompt)
    : prompt_(std::move(prompt)), terminal_(::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1) {}

std::optional<std::string> LineReader::read() {
  if (terminal_) return edited();
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

std::optional<std::string> LineReader::edited() {
  const RawTerminal raw;
  EditedLine line;
  std::size_t place = history_.size();  // in the history; its size: the line itself
  for (;;) {
    draw(prompt_, line);
    const Pressed pressed = next_key();
    switch (pressed.key) {
      case Key::enter:
        io::write_standard_output("\n");
        if (!line.text().empty()) history_.push_back(line.text());
        return line.text();
      case Key::give_up:
        io::write_standard_output("^C\n");
        line.set("");
        place = history_.size();
        break;
      case Key::finished:
        if (line.text().empty()) {
          io::write_standard_output("\n");
          return std::nullopt;
        }
        line.press(Key::erase_after);
        break;
      case Key::earlier:
        if (place > 0) line.set(history_[--place]);
        break;
      case Key::later:
        if (place < history_.size()) line.set(++place < history_.size() ? history_[place] : "");
        break;
      default:
        line.press(pressed.key, pressed.text);
    }
  }
}

}  // namespace mhla::cli
