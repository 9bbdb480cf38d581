// The metadata of generator files.
#include "models/generator_file.hpp"

#include <fmt/format.h>

#include <cmath>

#include "mhla/types.hpp"
#include "models/base/weights.hpp"
#include "models/registry.hpp"

namespace mhla::models {
namespace {

constexpr const char* kClassNames = "mhla.classes";
constexpr const char* kDiffusion = "mhla.diffusion";

GeneratorFacts facts_in(const io::SafeTensors& file, std::int64_t classes) {
  GeneratorFacts facts;
  const io::Json names = stored_json(file, kClassNames), diffusion = stored_json(file, kDiffusion);
  if (!names.is_null() && !io::read_exactly(names, facts.classes))
    throw Error(fmt::format("{}: metadata \"{}\" is not a list of names", file.source(), kClassNames));
  if (!facts.classes.empty() && static_cast<std::int64_t>(facts.classes.size()) != classes)
    throw Error(fmt::format("{}: metadata \"{}\" has {} names for {} classes", file.source(), kClassNames,
                            facts.classes.size(), classes));
  const auto read = [&](const char* member, auto& target) {
    return !diffusion.contains(member) || io::read_exactly(diffusion[member], target);
  };
  const bool good =
      diffusion.is_null() || (diffusion.is_object() && read("schedule", facts.schedule) && read("steps", facts.steps) &&
                              read("space", facts.space) && read("latent_scale", facts.latent_scale));
  if (!good || (facts.schedule != "linear" && facts.schedule != "cosine" && facts.schedule != "flow") ||
      facts.steps < 2 || facts.steps > 1'000'000 || (facts.space != "pixels" && facts.space != "latents") ||
      !(facts.latent_scale > 0 && std::isfinite(facts.latent_scale)))
    throw Error(fmt::format("{}: metadata \"{}\" is not of the form {}", file.source(), kDiffusion,
                            R"({"schedule": "linear"|"cosine"|"flow", "steps": 2 to 1000000, )"
                            R"("space": "pixels"|"latents", "latent_scale": x > 0})"));
  return facts;
}

}  // namespace

void save_generator(const Generator& generator, const std::filesystem::path& path, const GeneratorFacts& facts,
                    at::ScalarType dtype, const io::Json& more) {
  io::Json metadata = more;
  metadata[kClassNames] = facts.classes;
  metadata[kDiffusion] = {{"schedule", facts.schedule},
                          {"steps", facts.steps},
                          {"space", facts.space},
                          {"latent_scale", facts.latent_scale}};
  save_model(generator, path, metadata, dtype);
}

LoadedGenerator load_generator(const std::filesystem::path& path, const at::Device& device) {
  const io::SafeTensors file = io::SafeTensors::load(path);
  const io::Json config = stored_json(file, kConfig);
  if (config.is_null())
    throw Error(fmt::format(
        "{}: metadata \"{}\" is missing, which says what model it is; files of `mhla train generate` have it",
        file.source(), kConfig));
  if (const std::string_view task = task_of(config); !task.empty() && task != "generate")
    throw Error(
        fmt::format("{}: it holds a model of `mhla train {}`, \"{}\"; a generator is needed, of `mhla train "
                    "generate`",
                    file.source(), task, config["model"].get<std::string>()));
  LoadedGenerator loaded;
  try {
    loaded.model =
        std::static_pointer_cast<Generator>(make_model_of(file, io::Json(config.get<GeneratorOptions>()), "generate"));
  } catch (const Error& error) {
    throw config_error(file, error);
  }
  loaded.facts = facts_in(file, loaded.model->options.classes);
  load_weights(*loaded.model, file, LoadMode::strict);
  loaded.model->to(device);
  loaded.model->eval();
  return loaded;
}

}  // namespace mhla::models
