// Lines, commands, and answers that Ctrl-C ends.
#include "cli/generate/chat.hpp"

#include <fmt/format.h>

#include <iostream>
#include <optional>

#include "cli/commands.hpp"
#include "cli/generate/line_reader.hpp"
#include "io/file.hpp"
#include "train/interrupt.hpp"

namespace mhla::cli {
namespace {

constexpr const char* kHelp =
    "Write how a text begins, and the model goes on with it. It has learned to continue texts, not to follow orders.\n"
    "  an empty line   go on from here\n"
    "  /reset          forget everything\n"
    "  /save FILE      save the conversation; mhla generate --state FILE goes on with it\n"
    "  /help           this text\n"
    "  Ctrl-C          end the answer\n"
    "  Ctrl-D          end the program\n";

class Chat {
 public:
  Chat(const GenerateOptions& options, const Output& output)
      : options_(options), output_(output), model_(open_model(options)),
        conversation_(conversation_of(options, model_)), turns_(io::Json::array()) {}

  int run() {
    if (reader_.terminal())
      std::cerr << fmt::format("{} goes on with what you write; /help lists what else there is\n", model_.name)
                << std::flush;
    for (auto line = reader_.read(); line; line = reader_.read()) {
      try {
        if (line->starts_with('/'))
          obey(*line);
        else
          answer(*line);
      } catch (const Error& error) {  // of this line: the conversation goes on
        std::cerr << "mhla: " << error.what() << std::endl;
        failed_ = true;
      }
    }
    std::cerr << times_line(times_) << std::endl;
    if (!options_.state.empty()) save(options_.state);
    output_.json({{"model", model_.name}, {"answers", turns_}, {"times", times_json(times_)}});
    return failed_ && !reader_.terminal() ? 1 : 0;
  }

 private:
  void obey(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string command = line.substr(0, space);
    const std::string file = space == std::string::npos ? options_.state : line.substr(space + 1);
    if (command == "/help") {
      std::cerr << kHelp << std::flush;
    } else if (command == "/reset") {
      conversation_ = tasks::Conversation(model_);
    } else if (command == "/save") {
      if (file.empty()) throw UsageError("/save needs the name of a file");
      save(file);
      std::cerr << fmt::format("{}: {} tokens\n", file, conversation_.tokens().size()) << std::flush;
    } else {
      throw UsageError(fmt::format("\"{}\" is no command; it may be /help, /reset or /save", command));
    }
  }

  void save(const std::string& file) const { io::write_file(file, conversation_.save()); }

  void answer(const std::string& line) {
    const bool begins = conversation_.tokens().empty();
    tasks::GenerationRequest request = options_.request;
    if (begins || !line.empty()) request.prompt = tokens_of_prompt(model_, begins ? line : "\n" + line, begins);
    const train::InterruptGuard interrupts("");
    const tasks::GenerationWatch watch = {.read = [](std::int64_t) { return !train::InterruptGuard::requested(); },
                                          .say =
                                              [this](std::size_t, const std::string& text) {
                                                say(output_, text);
                                                return !train::InterruptGuard::requested();
                                              }};
    const tasks::Answer answer = conversation_.answer(request, watch, &times_);
    say(output_, "\n");
    io::Json turn = {{"prompt", line}};
    turn.update(answer_json(answer));
    turns_.push_back(turn);
  }

  const GenerateOptions& options_;
  const Output& output_;
  tasks::LanguageModel model_;
  tasks::Conversation conversation_;
  LineReader reader_{"> "};
  tasks::GenerationTimes times_;
  io::Json turns_;
  bool failed_ = false;
};

}  // namespace

int chat(const GenerateOptions& options, const Output& output) {
  if (options.count > 1)
    throw UsageError("--count is for prompts that are given; --chat gives one answer to each line");
  return Chat(options, output).run();
}

}  // namespace mhla::cli
