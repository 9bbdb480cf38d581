// torch.classes.mhla.LanguageModel: the language models of the program, for the Python package (mhla.models).
#include <torch/custom_class.h>

#include <tuple>

#include "python/value_errors.hpp"
#include "tasks/language/generation.hpp"

namespace mhla {
namespace {

using Ids = std::vector<std::int64_t>;

class PythonLanguageModel : public torch::CustomClassHolder {
 public:
  PythonLanguageModel(const std::string& path, const std::string& tokenizer, const std::string& device,
                      const std::string& beyond)
      : opened_(with_value_errors(
            [&] { return tasks::open_language_model(path, tokenizer, at::Device(device), beyond); })) {}

  std::string config() const { return opened_.model->config().dump(); }
  std::string name() const { return opened_.name; }
  std::int64_t longest() const { return tasks::longest_sequence(*opened_.model); }

  std::int64_t tokenizer_size() const { return opened_.tokenizer->size(); }
  std::int64_t begin_token() const {
    return with_value_errors([&] { return tasks::begin_token(*opened_.tokenizer); });
  }
  std::int64_t end_token() const { return opened_.tokenizer->special().end.value_or(-1); }
  Ids encode(const std::string& text) const {
    return with_value_errors([&] { return widened(opened_.tokenizer->encode(text)); });
  }
  std::string decode(const Ids& ids) const {
    return with_value_errors([&] { return opened_.tokenizer->decode(tokens_of(ids)); });
  }

  at::Tensor forward(const at::Tensor& ids) {
    return with_value_errors([&] { return opened_.model->forward(ids); });
  }

  // As `mhla generate` answers them: a text and its tokens for each prompt, answer after answer.
  std::tuple<std::vector<std::string>, std::vector<Ids>> generate(const std::vector<std::string>& prompts,
                                                                  std::int64_t count, std::int64_t tokens,
                                                                  double temperature, std::int64_t top_k, double top_p,
                                                                  double min_p, double repetition_penalty,
                                                                  const std::vector<std::string>& stop,
                                                                  std::int64_t seed, bool past_end) const {
    return with_value_errors([&] {
      std::vector<tasks::GenerationRequest> requests;
      for (const std::string& prompt : prompts)
        for (std::int64_t number = 0; number < count; ++number)
          requests.push_back({.prompt = tasks::prompt_tokens(*opened_.tokenizer, prompt),
                              .tokens = tokens,
                              .sampling = {.repetition_penalty = repetition_penalty,
                                           .temperature = temperature,
                                           .top_k = top_k,
                                           .top_p = top_p,
                                           .min_p = min_p,
                                           .seed = static_cast<std::uint64_t>(seed)},
                              .sequence = static_cast<std::uint64_t>(number),
                              .stop = stop,
                              .past_end = past_end});
      std::tuple<std::vector<std::string>, std::vector<Ids>> result;
      for (const tasks::Answer& answer : tasks::generate(opened_, requests)) {
        std::get<0>(result).push_back(answer.text);
        std::get<1>(result).push_back(widened(answer.tokens));
      }
      return result;
    });
  }

  // Of the tokens that follow the first `given`: the sum of their log-probabilities, and whether each is the likeliest.
  std::tuple<double, bool> log_likelihood(const Ids& ids, std::int64_t given) const {
    return with_value_errors([&] {
      const auto size = static_cast<std::int64_t>(ids.size());
      if (given < 1 || given >= size)
        throw Error("given is " + std::to_string(given) + "; it must be 1 to " + std::to_string(size - 1));
      const torch::NoGradGuard no_gradient;
      const at::Tensor all = torch::tensor(ids, at::kLong).unsqueeze(0), next = all.slice(1, given).flatten();
      const at::Tensor hidden = opened_.model->hidden(all.slice(1, 0, size - 1)).slice(1, given - 1);
      const at::Tensor logits = opened_.model->logits(hidden).squeeze(0).cpu().to(at::kDouble);
      const at::Tensor scores = logits.log_softmax(1).gather(1, next.unsqueeze(1));
      return std::tuple{scores.sum().item<double>(), logits.argmax(1).equal(next)};
    });
  }

 private:
  static Ids widened(const std::vector<text::Token>& tokens) { return {tokens.begin(), tokens.end()}; }

  std::vector<text::Token> tokens_of(const Ids& ids) const {
    std::vector<text::Token> tokens;
    tokens.reserve(ids.size());
    for (const std::int64_t id : ids) {
      if (id < 0 || id >= opened_.tokenizer->size())
        throw Error("ids hold " + std::to_string(id) + "; they may be 0 to " +
                    std::to_string(opened_.tokenizer->size() - 1));
      tokens.push_back(static_cast<text::Token>(id));
    }
    return tokens;
  }

  tasks::LanguageModel opened_;
};

TORCH_LIBRARY_FRAGMENT(mhla, library) {
  library.class_<PythonLanguageModel>("LanguageModel")
      .def(torch::init<const std::string&, const std::string&, const std::string&, const std::string&>())
      .def("config", &PythonLanguageModel::config)
      .def("name", &PythonLanguageModel::name)
      .def("longest", &PythonLanguageModel::longest)
      .def("tokenizer_size", &PythonLanguageModel::tokenizer_size)
      .def("begin_token", &PythonLanguageModel::begin_token)
      .def("end_token", &PythonLanguageModel::end_token)
      .def("encode", &PythonLanguageModel::encode)
      .def("decode", &PythonLanguageModel::decode)
      .def("forward", &PythonLanguageModel::forward)
      .def("generate", &PythonLanguageModel::generate)
      .def("log_likelihood", &PythonLanguageModel::log_likelihood);
}

}  // namespace
}  // namespace mhla
