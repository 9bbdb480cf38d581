// Which tokenizer belongs to which weights.
#include "tasks/language/language_model.hpp"

#include <fmt/format.h>

#include "models/base/weights.hpp"
#include "models/lm_file.hpp"

namespace mhla::tasks {
namespace {

constexpr const char* kTokenizer = "mhla.tokenizer";  // the metadata with its fingerprint

std::filesystem::path weights_in(const std::filesystem::path& path) {
  return std::filesystem::is_directory(path) ? path / "model.safetensors" : path;
}

std::filesystem::path tokenizer_of(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return path;
  std::filesystem::path own = path.parent_path() / (path.stem().string() + "_tokenizer.json");
  if (std::filesystem::exists(own)) return own;
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

void check_fits(const LanguageModel& opened, const std::filesystem::path& path) {
  const text::Tokenizer& tokenizer = *opened.tokenizer;
  if (tokenizer.size() > opened.model->options.vocabulary)
    throw Error(fmt::format("{}: the model knows {} tokens, but the tokenizer has {}; --tokenizer names another",
                            path.string(), opened.model->options.vocabulary, tokenizer.size()));
  const std::filesystem::path weights = weights_in(path);
  if (!std::filesystem::exists(weights)) return;
  const io::SafeTensors file = io::SafeTensors::map(weights);
  const auto trained_with = file.metadata().find(kTokenizer);
  if (trained_with != file.metadata().end() && trained_with->second != tokenizer.fingerprint())
    throw Error(
        fmt::format("{}: the model was trained with the tokenizer {}, but this one is {}; --tokenizer names another",
                    weights.string(), trained_with->second, tokenizer.fingerprint()));
}

}  // namespace

LanguageModel open_language_model(const std::filesystem::path& path, const std::filesystem::path& tokenizer,
                                  const at::Device& device, const std::string& beyond) {
  LanguageModel opened{.model = models::load_lm(path, device, beyond),
                       .tokenizer = text::open_tokenizer(tokenizer.empty() ? tokenizer_of(path) : tokenizer),
                       .name = std::filesystem::is_directory(path)
                                   ? std::filesystem::canonical(path).filename().string()
                                   : path.stem().string()};
  check_fits(opened, path);
  return opened;
}

void save_language_model(const models::Lm& model, const text::Tokenizer& tokenizer, const std::filesystem::path& path,
                         at::ScalarType dtype, const io::Json& more) {
  io::Json metadata = more;
  metadata[kTokenizer] = tokenizer.fingerprint();
  models::save_model(model, path, metadata, dtype);
}

}  // namespace mhla::tasks
