// The metadata of classifier files.
#include "models/classifier_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mhla/types.hpp"
#include "models/base/weights.hpp"
#include "models/classifiers.hpp"

namespace mhla::models {
namespace {

constexpr const char* kClasses = "mhla.classes";
constexpr const char* kPreprocessing = "mhla.preprocessing";

ClassifierFacts stored_facts(const io::SafeTensors& file, std::int64_t classes) {
  ClassifierFacts facts;
  const auto check = [&](bool good, const char* key, const char* form) {
    if (!good) throw Error(fmt::format("{}: metadata \"{}\" is not {}", file.source(), key, form));
  };
  const io::Json names = stored_json(file, kClasses), preprocessing = stored_json(file, kPreprocessing);
  check(names.is_null() || io::read_exactly(names, facts.classes), kClasses, "a list of names");
  const auto read = [&](const char* member, auto& target) {
    return preprocessing.contains(member) && io::read_exactly(preprocessing[member], target);
  };
  check(preprocessing.is_null() || (read("mean", facts.preprocessing.mean) && read("std", facts.preprocessing.std) &&
                                    read("crop_fraction", facts.preprocessing.crop_fraction)),
        kPreprocessing, R"({"mean": [r, g, b], "std": [r, g, b], "crop_fraction": x})");
  if (!facts.classes.empty() && static_cast<std::int64_t>(facts.classes.size()) != classes)
    throw Error(fmt::format("{}: metadata \"{}\" has {} names for {} classes", file.source(), kClasses,
                            facts.classes.size(), classes));
  const Preprocessing& pixels = facts.preprocessing;
  if (!std::ranges::all_of(pixels.std, [](double x) { return x > 0 && std::isfinite(x); }) ||
      !std::ranges::all_of(pixels.mean, [](double x) { return std::isfinite(x); }) ||
      !(pixels.crop_fraction >= 0.01 && pixels.crop_fraction <= 1))
    throw Error(fmt::format("{}: metadata \"{}\" must have finite means, positive std and a crop_fraction of 0.01 to 1",
                            file.source(), kPreprocessing));
  return facts;
}

}  // namespace

void save_classifier(const Classifier& classifier, const std::filesystem::path& path, const ClassifierFacts& facts,
                     at::ScalarType dtype, const io::Json& more) {
  io::Json metadata = more;
  metadata[kClasses] = facts.classes;
  const Preprocessing& preprocessing = facts.preprocessing;
  metadata[kPreprocessing] = {
      {"mean", preprocessing.mean}, {"std", preprocessing.std}, {"crop_fraction", preprocessing.crop_fraction}};
  save_model(classifier, path, metadata, dtype);
}

LoadedClassifier load_classifier(const std::filesystem::path& path, const at::Device& device) {
  const io::SafeTensors file = io::SafeTensors::load(path);
  const io::Json config = stored_json(file, kConfig);
  if (config.is_null())
    throw Error(fmt::format(
        "{}: metadata \"{}\" is missing, which says what model it is; files of `mhla train classify` have it, "
        "and those of tools/convert_checkpoint.py for the models it recognises; `mhla train classify --init` "
        "takes weights without",
        file.source(), kConfig));
  LoadedClassifier loaded;
  try {
    loaded.model = make_classifier_of(file, config.get<ClassifierOptions>());
  } catch (const Error& error) {
    throw config_error(file, error);
  }
  loaded.facts = stored_facts(file, loaded.model->options.classes);
  load_weights(*loaded.model, file, LoadMode::strict);
  loaded.model->to(device);
  loaded.model->eval();
  return loaded;
}

}  // namespace mhla::models
