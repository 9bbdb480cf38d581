// The table of families, and models by name.
#include "models/registry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "mhla/types.hpp"
#include "models/dit/dit.hpp"
#include "models/vit/vit.hpp"
#include "models/vlt/vlt.hpp"

namespace mhla::models {
namespace {

constexpr std::array kFamilies = {
    Family{"classify", vit_names, made<Vit>},
    Family{"classify", vlt_names, made<Vlt>},
    Family{"generate", dit_names, made<Dit>},
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

std::shared_ptr<Model> make_model(const io::Json& config, std::string_view task, Families known) {
  if (!config.is_object() || !config.contains("model") || !config["model"].is_string())
    throw Error("\"model\", the name of the model, is missing in its config");
  const auto name = config["model"].get<std::string>();
  for (const Family& family : known)
    if (family.task == task && std::ranges::count(family.names(), name) > 0) return family.make(config);
  throw Error(fmt::format("model is \"{}\"; it may be {}", name, fmt::join(model_names(task, known), ", ")));
}

}  // namespace mhla::models
