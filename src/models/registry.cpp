// The table of families, and models by name.
#include "models/registry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "mhla/types.hpp"
#include "models/base/weights.hpp"
#include "models/dig/dig.hpp"
#include "models/dit/dit.hpp"
#include "models/lm/lm.hpp"
#include "models/sana/sana.hpp"
#include "models/vit/vit.hpp"
#include "models/vlt/vlt.hpp"
#include "models/wan/wan.hpp"

namespace mhla::models {
namespace {

constexpr std::array kFamilies = {
    Family{"classify", vit_names, made<Vit>, least_elements<Vit, VitDesign>},
    Family{"classify", vlt_names, made<Vlt>, least_elements<Vlt, VltDesign>},
    Family{"generate", dit_names, made<Dit>, least_elements<Dit, DitDesign>},
    Family{"generate", dig_names, made<Dig>, least_elements<Dig, DigDesign>},
    Family{"language", lm_names, made<Lm>, least_elements<Lm, LmDesign>},
    Family{"image", sana_names, made<Sana>, least_elements<Sana, SanaDesign>},
    Family{"video", wan_names, made<Wan>, least_elements<Wan, WanDesign>},
};

}  // namespace

Families families() { return kFamilies; }

std::vector<std::string> model_names(std::string_view task, Families known) {
  std::vector<std::string> all;
  for (const Family& family : known)
    if (family.task == task)
      for (const std::string& name : family.names()) all.push_back(name);
  return all;
}

std::string_view task_of(const io::Json& config, Families known) {
  if (!config.is_object() || !config.contains("model") || !config["model"].is_string()) return "";
  const auto name = config["model"].get<std::string>();
  for (const Family& family : known)
    if (std::ranges::count(family.names(), name) > 0) return family.task;
  return "";
}

namespace {

const Family& family_of(const io::Json& config, std::string_view task, Families known) {
  if (!config.is_object() || !config.contains("model") || !config["model"].is_string())
    throw Error("\"model\", the name of the model, is missing in its config");
  const auto name = config["model"].get<std::string>();
  for (const Family& family : known)
    if (family.task == task && std::ranges::count(family.names(), name) > 0) return family;
  throw Error(fmt::format("model is \"{}\"; it may be {}", name, fmt::join(model_names(task, known), ", ")));
}

}  // namespace

std::shared_ptr<Model> make_model(const io::Json& config, std::string_view task, Families known) {
  return family_of(config, task, known).make(config);
}

std::shared_ptr<Model> make_model_of(const io::SafeTensors& file, const io::Json& config, std::string_view task,
                                     Families known) {
  const Family& family = family_of(config, task, known);
  const double least = family.least_elements == nullptr ? 0.0 : family.least_elements(config);
  if (const double there = elements_of(file); there < least)
    throw Error(fmt::format("such a model has at least {:.4g} elements, but the tensors of the file have {:.4g}", least,
                            there));
  return family.make(config);
}

}  // namespace mhla::models
