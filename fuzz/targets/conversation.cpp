// Saved conversations with a language model: what is accepted goes on.
#include "tasks/language/conversation.hpp"

#include "support/small_tokenizers.hpp"
#include "support/target.hpp"

using namespace mhla;

namespace {

const tasks::LanguageModel& model() {
  static const tasks::LanguageModel made = [] {
    torch::manual_seed(1);
    models::LmOptions options;
    options.attention = {"mhla", "softmax"};
    options.vocabulary = 260;
    options.width = options.mlp_width = 4;
    options.depth = 2;
    options.heads = 1;
    options.blocks = 3;
    options.block_size = 2;
    options.beyond = "clamp";
    const std::string tokenizer = mhla::testing::small_tokenizer_json();
    return tasks::LanguageModel{.model = std::make_shared<models::Lm>(options),
                                .tokenizer = text::read_tokenizer(std::as_bytes(std::span(tokenizer)), "tokenizer"),
                                .name = "small"};
  }();
  return made;
}

tasks::GenerationRequest request(std::int64_t tokens) {
  tasks::GenerationRequest made;
  made.prompt = tasks::prompt_tokens(*model().tokenizer, "the");
  made.tokens = tokens;
  made.past_end = true;
  return made;
}

}  // namespace

fuzz::Inputs fuzz::seeds() {
  Inputs inputs;
  for (const std::int64_t tokens : {1, 2, 9}) {
    tasks::Conversation conversation(model());
    conversation.answer(request(tokens));
    inputs.push_back(conversation.save());
  }
  return inputs;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::Bytes bytes = fuzz::copy_of(fuzz::bytes_of(data, size));
  fuzz::runs_or_names({"talk.state"}, [&] {
    tasks::Conversation conversation(model(), bytes, "talk.state");
    fuzz::expect(conversation.answer(request(3)).tokens.size() == 3, "an answer of another length");
  });
  return 0;
}
