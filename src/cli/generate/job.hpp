// The model that answers, and what it is asked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/generate/options.hpp"
#include "cli/support/output.hpp"
#include "tasks/language/conversation.hpp"

namespace mhla::cli {

tasks::LanguageModel open_model(const GenerateOptions& options);  // on its device, in its type

// Texts of -p, or that of --prompt-file; one empty text without either.
std::vector<std::string> prompts_of(const GenerateOptions& options);

// Its tokens, with a UsageError that says what is wrong with it. `begins`: nothing is before it.
std::vector<text::Token> tokens_of_prompt(const tasks::LanguageModel& model, std::string_view text, bool begins = true);

// That of --state where the file is there, else a new one.
tasks::Conversation conversation_of(const GenerateOptions& options, const tasks::LanguageModel& model);

// Numbers for people, such as "prompt: 12 tokens, 240 tokens/s; answer: 100 tokens, 3.1 ms each", and for programs.
std::string times_line(const tasks::GenerationTimes& times);
io::Json times_json(const tasks::GenerationTimes& times);

io::Json answer_json(const tasks::Answer& answer);

// Text to the standard output at once: byte for byte into a file or a pipe, without control characters on a terminal.
void say(const Output& output, const std::string& text);

}  // namespace mhla::cli
