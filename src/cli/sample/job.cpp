// Checks of what is asked for.
#include "cli/sample/job.hpp"

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/support/device.hpp"
#include "models/sd_vae/sd_vae_file.hpp"
#include "tasks/pretrained.hpp"

namespace mhla::cli {
namespace {

std::shared_ptr<models::SdVae> autoencoder(const SampleOptions& options, const models::GeneratorFacts& facts,
                                           const at::Device& device) {
  const bool latents = facts.space == "latents";
  if (latents && options.vae.empty())
    throw UsageError(
        "--vae is needed, since the model draws latents: the autoencoder of Stable Diffusion, as a folder of diffusers "
        "or a .safetensors file");
  if (!latents && !options.vae.empty()) throw UsageError("--vae is for models of latents; this one draws pixels");
  return latents ? models::load_sd_vae(options.vae, device) : nullptr;
}

tasks::PictureSet pictures(const SampleOptions& options, const models::LoadedGenerator& generator) {
  return {.classes = tasks::parse_classes(options.classes, generator), .count = options.count, .first = options.first};
}

// Height and width of what the network draws.
std::vector<std::int64_t> drawn_size(const SampleOptions& options, const models::Generator& generator,
                                     std::int64_t factor) {
  if (options.size.empty()) return generator.options.size;
  const std::int64_t multiple = factor * generator.patch();
  for (const std::int64_t side : options.size)
    if (side % multiple != 0)
      throw UsageError(fmt::format("--size is {} {}; height and width must be multiples of {}, the side of a patch",
                                   options.size[0], options.size[1], multiple));
  return {options.size[0] / factor, options.size[1] / factor};
}

}  // namespace

SampleJob::SampleJob(const SampleOptions& options)
    : model_file(tasks::pretrained_path(options.model, "generate")), device(choose_device(options.device)),
      generator(models::load_generator(model_file, device)),
      process(diffusion::make_process(generator.facts.schedule, generator.facts.steps)),
      developer(generator, autoencoder(options, generator.facts, device)), set(pictures(options, generator)) {
  request.size = drawn_size(options, *generator.model, developer.factor());
  height = request.size[0] * developer.factor();
  width = request.size[1] * developer.factor();
  request.sampler = options.sampler.empty() ? tasks::usual_sampler(*process) : tasks::parse_sampler(options.sampler);
  request.steps = options.steps;
  request.guidance = {.scale = options.cfg_scale, .from = options.cfg_interval[0], .to = options.cfg_interval[1]};
  if (request.guidance.from > request.guidance.to)
    throw UsageError(fmt::format("--cfg-interval is {} {}; the first must not be above the second",
                                 request.guidance.from, request.guidance.to));
  request.seed = options.seed;
  request.batch = options.batch;
  try {
    tasks::check(request, *generator.model, *process);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--{}", error.what()));  // it begins with the name of the option
  }
}

}  // namespace mhla::cli
