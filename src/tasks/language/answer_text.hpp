// The text of an answer as its tokens come, up to the first stop string.
#pragma once

#include <string>
#include <vector>

#include "text/text_stream.hpp"
#include "text/tokenizer.hpp"

namespace mhla::tasks {

class AnswerText {
 public:
  // The answer ends before the first of these strings; an empty one is an Error.
  AnswerText(const text::Tokenizer& tokenizer, std::vector<std::string> stop);

  // Text that is certain now: whole characters that no stop string can begin with. Nothing once the answer has ended.
  std::string add(text::Token token);
  // What was held back; the answer has ended.
  std::string finish();

  bool stopped() const { return stopped_; }  // by a stop string

 private:
  std::string certain(const std::string& more, bool last);

  text::TextStream text_;
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace mhla::tasks
