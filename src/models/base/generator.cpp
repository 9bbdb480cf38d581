// What options of generators must satisfy, and what all generators share.
#include "models/base/generator.hpp"

#include <fmt/format.h>

#include "mhla/mixing.hpp"
#include "models/base/mixing_parameters.hpp"
#include "models/base/option_checks.hpp"
#include "models/base/options_json.hpp"
#include "nn/block_mixing.hpp"

namespace mhla::models {

template <typename Options, typename Visit>
  requires std::is_same_v<std::remove_const_t<Options>, GeneratorOptions>
void for_each_option(Options& options, const Visit& visit) {
  visit("model", options.model);
  visit("preset", options.preset);
  visit("attention", options.attention);
  visit("size", options.size);
  visit("channels", options.channels);
  visit("classes", options.classes);
  visit("blocks", options.blocks);
  visit("patch", options.patch);
  visit("width", options.width);
  visit("depth", options.depth);
  visit("heads", options.heads);
  visit("lepe", options.lepe);
  visit("cpe", options.cpe);
  visit("gate", options.gate);
  visit("qk_norm", options.qk_norm);
  visit("learned_variance", options.learned_variance);
  visit("mixing_init", options.mixing_init);
  visit("mixing_sigma", options.mixing_sigma);
  visit("mixing", options.mixing);
  visit("mixing_frozen", options.mixing_frozen);
  visit("recompute", options.recompute);
}

void to_json(io::Json& json, const GeneratorOptions& options) {
  write_options(json, options);
  if (options.mixing == "static") json.erase("mixing");  // goes without saying, so that older runs can go on
}
void from_json(const io::Json& json, GeneratorOptions& options) { read_options(json, options, "generator"); }

void check_generator_options(const GeneratorOptions& options) {
  check_preset(options.preset);
  check_pair_of_sizes("size", options.size);
  check_pair_of_sizes("blocks", options.blocks);
  check_range("channels", options.channels, 1, 1 << 10);
  check_range("classes", options.classes, 1, 1 << 20);
  check_range("patch", options.patch, 0, 4096);
  check_range("width", options.width, 0, 1 << 16);
  check_range("depth", options.depth, 0, 1024);
  check_range("heads", options.heads, 0, 1 << 12);
  parse_mixing_init(options.mixing_init);
  check_mixing(options.mixing, options.preset);
}

Generator::Generator(GeneratorOptions options) : options(std::move(options)) { check_generator_options(this->options); }

at::Tensor Generator::forward_with_cfg(const at::Tensor& x, const at::Tensor& t, const at::Tensor& y, double scale) {
  if (x.dim() != 4 || x.size(0) % 2 != 0)
    throw Error("x has shape " + c10::str(x.sizes()) + "; guidance needs two equal halves of a batch");
  const at::Tensor half = x.narrow(0, 0, x.size(0) / 2);
  const at::Tensor output = forward(at::cat({half, half}), t, y);
  const at::Tensor noise = output.narrow(1, 0, options.channels);
  const auto halves = noise.chunk(2);
  const at::Tensor guided = halves[1] + scale * (halves[0] - halves[1]);
  return at::cat({at::cat({guided, guided}), output.slice(1, options.channels)}, 1);
}

bool Generator::decays(const std::string& name) const { return !is_mixing(name); }

void Generator::after_step() { nn::project_mixing_(learned_mixing(mixing_parameters()), least_mixing(options.mixing)); }

Fit Generator::fit_from(const io::Json& from) const {
  std::optional<GeneratorOptions> source;
  if (!from.is_null()) {
    source = from.get<GeneratorOptions>();
    check_generator_options(*source);
  }
  return [this, source](const std::string& name, const at::Tensor& stored) { return fitted(name, stored, source); };
}

void Generator::check_inputs(const at::Tensor& x, const at::Tensor& t, const at::Tensor& y, std::int64_t patch) const {
  const auto shape_error = [](const char* name, const at::Tensor& tensor, const std::string& right) {
    return Error(std::string(name) + " has shape " + c10::str(tensor.sizes()) + "; it must be " + right);
  };
  if (x.dim() != 4 || x.size(1) != options.channels)
    throw shape_error("x", x, fmt::format("[batch, {}, height, width]", options.channels));
  if (x.size(2) < 1 || x.size(3) < 1 || x.size(2) % patch != 0 || x.size(3) % patch != 0)
    throw shape_error("x", x, fmt::format("of a height and width that are multiples of the patch, {}", patch));
  if (t.dim() != 1 || t.size(0) != x.size(0)) throw shape_error("t", t, fmt::format("[{}]", x.size(0)));
  if (y.dim() != 1 || y.size(0) != x.size(0)) throw shape_error("y", y, fmt::format("[{}]", x.size(0)));
}

}  // namespace mhla::models
