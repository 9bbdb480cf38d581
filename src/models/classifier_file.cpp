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
  const char* key = kClasses;
  try {
    if (const io::Json names = stored_json(file, key); !names.is_null()) names.get_to(facts.classes);
    key = kPreprocessing;
    if (const io::Json preprocessing = stored_json(file, key); !preprocessing.is_null()) {
      preprocessing.at("mean").get_to(facts.preprocessing.mean);
      preprocessing.at("std").get_to(facts.preprocessing.std);
      preprocessing.at("crop_fraction").get_to(facts.preprocessing.crop_fraction);
    }
  } catch (const io::Json::exception&) {
    throw Error(fmt::format(
        "{}: metadata \"{}\" is not {}", file.source(), key,
        key == kClasses ? "a list of names" : R"({"mean": [r, g, b], "std": [r, g, b], "crop_fraction": x})"));
  }
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
    loaded.model = make_classifier(config.get<ClassifierOptions>());
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
