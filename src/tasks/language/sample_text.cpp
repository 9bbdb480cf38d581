// Token by token from a state.
#include "tasks/language/sample_text.hpp"

#include <array>
#include <vector>

#include "tasks/language/answer_text.hpp"

namespace mhla::tasks {

std::string sample_text(models::Lm& model, const text::Tokenizer& tokenizer, const TextRequest& request) {
  const at::NoGradGuard no_gradient;
  std::vector<std::int64_t> ids = {request.begin};
  for (const text::Token token : tokenizer.encode(request.prompt)) ids.push_back(token);
  models::LmState state = model.new_state(1, std::ssize(ids) + request.tokens);
  AnswerText answer(tokenizer, {});
  std::string text = request.prompt;
  at::Tensor next = torch::tensor(ids).unsqueeze(0);
  const std::array options = {request.sampling};
  for (std::int64_t count = 0; count < request.tokens; ++count) {
    const std::array place = {SequencePlace{0, static_cast<std::uint64_t>(count)}};
    next = sample_tokens(model.prefill(state, next), options, place).unsqueeze(0);
    const auto token = static_cast<text::Token>(next.item<std::int64_t>());
    if (token == request.begin || token == tokenizer.special().end || token >= tokenizer.size()) break;
    text += answer.add(token);
  }
  return text + answer.finish();
}

}  // namespace mhla::tasks
