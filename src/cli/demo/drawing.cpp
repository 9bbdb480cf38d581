// Draws with `mhla sample`'s defaults, but DPM-Solver++ and fewer steps.
#include "cli/demo/drawing.hpp"

#include <chrono>
#include <numeric>

#include "models/generator_file.hpp"
#include "tasks/generate/picture_set.hpp"
#include "tasks/generate/pictures.hpp"
#include "tasks/generate/sampling.hpp"
#include "tasks/pretrained.hpp"
#include "tasks/usage_error.hpp"

namespace mhla::cli {
namespace {

constexpr double kGuidance = 2.0;

tasks::PictureSet every_class(const models::Generator& generator, std::int64_t count) {
  tasks::PictureSet set{.classes = std::vector<std::int64_t>(static_cast<std::size_t>(generator.options.classes)),
                        .count = count};
  std::iota(set.classes.begin(), set.classes.end(), 0);
  return set;
}

}  // namespace

DrawnPictures draw_pictures(std::int64_t count, std::int64_t steps, const std::function<void(double)>& step) {
  DrawnPictures drawn{.count = count, .steps = steps};
  std::filesystem::path file;
  try {
    file = tasks::pretrained_path("", "generate");
  } catch (const tasks::UsageError& error) {
    drawn.missing = error.what();
    return drawn;
  }
  const models::LoadedGenerator generator = models::load_generator(file);
  const auto process = diffusion::make_process(generator.facts.schedule, generator.facts.steps);
  const tasks::PictureSet set = every_class(*generator.model, count);
  tasks::SampleRequest request{.sampler = tasks::Sampler::dpmpp, .steps = steps, .guidance = {.scale = kGuidance}};
  set.ask_for(request, 0, set.size(), generator.model->options.classes);

  const auto start = std::chrono::steady_clock::now();
  const double share = 1.0 / static_cast<double>(set.size() * steps);
  const at::Tensor pixels =
      tasks::pixels_of(tasks::sample(*generator.model, *process, request, [&](const tasks::Drawing&) { step(share); }));
  drawn.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  drawn.model = file.filename().string();
  drawn.height = pixels.size(1);
  drawn.width = pixels.size(2);
  drawn.sheet = tasks::grid_of(pixels, count);
  for (const std::int64_t label : set.classes)
    drawn.classes.push_back(
        {tasks::class_name(label, generator), tasks::grid_of(pixels.narrow(0, label * count, count), count)});
  return drawn;
}

}  // namespace mhla::cli
