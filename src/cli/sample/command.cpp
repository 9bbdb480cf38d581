// `mhla sample`: pictures drawn by a generator.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "cli/commands.hpp"
#include "cli/sample/job.hpp"
#include "cli/sample/outputs.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/device.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/option_group.hpp"
#include "cli/support/output.hpp"
#include "cli/support/progress.hpp"
#include "io/png.hpp"
#include "train/interrupt.hpp"

namespace mhla::cli {
namespace {

constexpr const char* kDefaultOut = "out/sample.png";
constexpr std::int64_t kMostPictures = 100'000'000, kLargestNumber = 1'000'000'000'000;

struct SampleCommand {
  SampleOptions options;
  int threads = 0;
  Output output;
};

// Pictures that are drawn before they are handed on: enough for all threads, few enough for the memory.
std::int64_t portion(const SampleJob& job) {
  return job.device.is_cpu() ? std::max(64, 4 * threads_in_use()) : job.request.batch;
}

void draw(SampleJob& job, SampleOutputs& outputs) {
  const std::int64_t count = job.set.size(), steps = job.request.steps;
  Progress progress("sample", static_cast<double>(count * steps));
  for (std::int64_t begin = 0; begin < count; begin += portion(job)) {
    const auto watch = [&](const tasks::Drawing& drawing) {
      if (train::InterruptGuard::requested()) throw Error("interrupted: files that were not complete are not written");
      if (outputs.animated())
        outputs.take_step(begin + drawing.picture, drawing.step - 1, job.developer.pixels(drawing.x_0.unsqueeze(0))[0]);
      progress.advance(1.0, fmt::format("{} pictures", count));
    };
    job.set.ask_for(job.request, begin, std::min(begin + portion(job), count), job.generator.model->options.classes);
    outputs.take(begin, job.developer.pixels(tasks::sample(*job.generator.model, *job.process, job.request, watch)));
  }
}

int run_sample(SampleCommand& given) {
  SampleOptions& options = given.options;
  use_threads(given.threads);
  if (options.out.empty() && options.separate.empty() && options.npz.empty() && options.animate.empty())
    options.out = kDefaultOut;
  SampleJob job(options);
  const train::InterruptGuard interrupts("\nstopping; once more stops at once\n");
  SampleOutputs outputs(options, job);
  const auto start = std::chrono::steady_clock::now();
  draw(job, outputs);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const SampleOutputs::Written written = outputs.finish();

  std::ostream& text = given.output.text();
  text << fmt::format("{} picture{} of {} x {} pixels in {:.1f} s, {} steps of {}\n",
                      grouped(static_cast<double>(job.set.size())), job.set.size() == 1 ? "" : "s", job.width,
                      job.height, seconds, options.steps, tasks::name_of(job.request.sampler));
  io::Json files = io::Json::array();
  for (const auto& [file, content] : written) {
    text << fmt::format("{}: {}\n", file, content);
    files.push_back(file);
  }
  io::Json json = parameters_of(job, options, job.set, "");
  text << fmt::format("\nThe same again: {}\n", json["command"].get<std::string>());
  json["files"] = files;
  json["seconds"] = seconds;
  given.output.json(json);
  return 0;
}

void add_what(CLI::App& command, SampleOptions& options) {
  OptionGroup group(command, "Pictures");
  group.add_open("--model", options.model, "FILE", "Generator (.safetensors) of `mhla train generate`",
                 "the one in the folder pretrained");
  group.add("--class", options.classes, "NAME", "Classes by name or number, all, or none for pictures without a class")
      ->delimiter(',');
  group.add("--count", options.count, "K", "Pictures of each class")->check(within<std::int64_t>(1, kMostPictures));
  group.add("--seed", options.seed, "X", "Seed of the noise; a picture depends on it, on its class and number")
      ->check(at_least<std::uint64_t>(0));
  group.add("--first", options.first, "N", "Number of the first picture of each class")
      ->check(within<std::int64_t>(0, kLargestNumber));
  group.add_open("--size", options.size, "HEIGHT WIDTH", "Size in pixels", "the model's own")
      ->expected(2)
      ->check(within<std::int64_t>(1, 1 << 16));
  group.add_open("--vae", options.vae, "PATH",
                 "Autoencoder of Stable Diffusion for models of latents: a folder of diffusers, or a .safetensors file",
                 "");
}

void add_how(CLI::App& command, SampleCommand& given) {
  SampleOptions& options = given.options;
  OptionGroup group(command, "Sampling");
  group.add_open("--sampler", options.sampler, "NAME", "How noise becomes a picture", "ddim, of a flow euler")
      ->check(CLI::IsMember(std::vector<std::string>(tasks::kSamplers.begin(), tasks::kSamplers.end())));
  group.add("--steps", options.steps, "S", "Steps, at most as many as the model's schedule has")
      ->check(at_least<std::int64_t>(1));
  group.add("--cfg-scale", options.cfg_scale, "W", "Strength of classifier-free guidance; 1 is none")
      ->check(at_least(0.0));
  group
      .add("--cfg-interval", options.cfg_interval, "FROM TO",
           "Times at which guidance acts: 0 is the picture, 1 is noise")
      ->expected(2)
      ->check(within(0.0, 1.0));
  add_device_option(command, options.device)->group("Sampling");
  group.add("--batch", options.batch, "N", "Pictures drawn together on a GPU")->check(within<std::int64_t>(1, 1 << 16));
  add_threads_option(command, given.threads)->group("Sampling");
}

void add_files(CLI::App& command, SampleCommand& given) {
  SampleOptions& options = given.options;
  OptionGroup group(command, "Files");
  group.add_open("-o,--out", options.out, "FILE", "All pictures in one PNG",
                 fmt::format("{} if no other file is asked for", kDefaultOut).c_str());
  group
      .add_open("--columns", options.columns, "N", "Pictures in a row of --out and --animate",
                "one row for each class, or a square")
      ->check(within<std::int64_t>(1, io::kLargestPngSide));
  group.add_open("--separate", options.separate, "FOLDER", "Each picture as a PNG of its own", "");
  group.add_open("--npz", options.npz, "FILE",
                 "All pictures as arrays of numpy: arr_0, uint8 [N, H, W, 3], and classes", "");
  group.add_open("--animate", options.animate, "FILE", "How the pictures come out of the noise, as an animated PNG",
                 "");
  given.output.add_option(command);
}

}  // namespace

void add_sample(CLI::App& program, Outcome& outcome) {
  auto given = std::make_shared<SampleCommand>();
  auto* command = program.add_subcommand("sample", "Draw pictures with a generator");
  add_what(*command, given->options);
  add_how(*command, *given);
  add_files(*command, *given);
  command->callback([given, &outcome] { outcome.exit_code = run_sample(*given); });
}

}  // namespace mhla::cli
