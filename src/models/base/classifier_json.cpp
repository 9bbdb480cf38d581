// Options of classifiers as JSON.
#include "models/base/classifier.hpp"
#include "models/base/options_json.hpp"

namespace mhla::models {

template <typename Options, typename Visit>
  requires std::is_same_v<std::remove_const_t<Options>, ClassifierOptions>
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
  visit("mixing", options.mixing);
  visit("mixing_frozen", options.mixing_frozen);
  visit("drop_path", options.drop_path);
  visit("recompute", options.recompute);
}

void to_json(io::Json& json, const ClassifierOptions& options) {
  write_options(json, options);
  if (options.mixing == "static") json.erase("mixing");  // goes without saying, so that older runs can go on
}

void from_json(const io::Json& json, ClassifierOptions& options) {
  read_options(json, options, "classifier");
  if (options.preset == "reference") options.preset = "authors";  // its name in older files
}

}  // namespace mhla::models
