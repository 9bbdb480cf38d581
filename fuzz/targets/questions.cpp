// Files of questions for language models, and the texts made of them.
#include <iterator>

#include "mhla/types.hpp"
#include "support/target.hpp"
#include "tasks/language/task_prompts.hpp"

using namespace mhla;

fuzz::Inputs fuzz::seeds() {
  return {bytes_of(R"({"query": "Why _ so?", "choices": ["a", "b c"], "label": 1})"
                   "\n\n"
                   R"({"query": "caf\u00e9 _", "choices": ["a", "b", "c", "d"], "label": 0, "passage": "P."})"),
          bytes_of(R"({"subject": "high_school", "query": " How far? ", "choices": ["1", "2", "3", "4"], "label": 3})"),
          bytes_of("{\"context\": \"one two\", \"target\": \" three\", \"id\": 7}\r\n")};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<tasks::TaskItem> items;
  fuzz::runs_or_names({"the-file"}, [&] { items = tasks::parse_task_items(fuzz::bytes_of(data, size), "the-file"); });
  if (items.empty()) return 0;
  for (const tasks::TaskKind& kind : tasks::task_kinds())
    fuzz::runs_or_names({kind.name}, [&] {
      const auto questions = tasks::questions_of(kind, items, {items, kind.examples == nullptr ? 0 : 1});
      fuzz::expect(questions.size() == items.size(), "as many questions as items");
      for (const tasks::Question& question : questions) {
        fuzz::expect(question.right >= 0 && question.right < std::ssize(question.choices), "a right answer");
        for (const tasks::PossibleAnswer& choice : question.choices) fuzz::expect(!choice.goes_on.empty(), "an answer");
      }
    });
  return 0;
}
