// Options of classifiers as JSON.
#include <fmt/format.h>

#include "mhla/types.hpp"
#include "models/base/classifier.hpp"

namespace mhla::models {
namespace {

// Calls visit(name, member) for every option.
template <typename Options, typename Visit>
void for_each_option(Options& options, const Visit& visit) {
  visit("model", options.model);
  visit("preset", options.preset);
  visit("attention", options.attention);
  visit("image_size", options.image_size);
  visit("patch", options.patch);
  visit("classes", options.classes);
  visit("blocks", options.blocks);
  visit("width", options.width);
  visit("depth", options.depth);
  visit("heads", options.heads);
  visit("lepe", options.lepe);
  visit("mixing_init", options.mixing_init);
  visit("mixing_sigma", options.mixing_sigma);
  visit("mixing_frozen", options.mixing_frozen);
  visit("drop_path", options.drop_path);
  visit("recompute", options.recompute);
}

}  // namespace

void to_json(io::Json& json, const ClassifierOptions& options) {
  json = io::Json::object();
  for_each_option(options, [&](const char* name, const auto& value) { json[name] = value; });
}

void from_json(const io::Json& json, ClassifierOptions& options) {
  if (!json.is_object()) throw Error(fmt::format("classifier options are {}, not an object", json.type_name()));
  io::Json known;
  to_json(known, ClassifierOptions{});
  for (const auto& item : json.items())
    if (!known.contains(item.key())) throw Error(fmt::format("classifier option \"{}\" is unknown", item.key()));
  options = {};
  for_each_option(options, [&](const char* name, auto& value) {
    const auto found = json.find(name);
    if (found != json.end() && !io::read_exactly(*found, value))
      throw Error(fmt::format("classifier option \"{}\" is {}, which is of the wrong type", name, found->dump()));
  });
  if (options.preset == "reference") options.preset = "authors";  // its name in older files
}

}  // namespace mhla::models
