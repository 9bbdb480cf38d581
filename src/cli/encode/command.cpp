// `mhla encode`: latents of images, ahead of training.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/device.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/output.hpp"
#include "cli/support/progress.hpp"
#include "models/sd_vae/sd_vae_file.hpp"
#include "tasks/generate/encoding.hpp"

namespace mhla::cli {
namespace {

struct Encode {
  tasks::EncodeOptions options;
  std::string vae, device = "auto";
  int threads = 0;
  Output output;
};

void run_encode(const Encode& given) {
  use_threads(given.threads);
  const at::Device device = choose_device(given.device);
  tasks::EncodeOptions options = given.options;
  if (options.image_size.size() == 1) options.image_size.push_back(options.image_size[0]);
  const auto autoencoder = models::load_sd_vae(given.vae, device);
  std::unique_ptr<Progress> progress;
  std::int64_t before = 0;
  const auto encoded = tasks::encode_images(options, *autoencoder, device, [&](std::int64_t done, std::int64_t all) {
    if (!progress) progress = std::make_unique<Progress>("encode", static_cast<double>(all));
    progress->advance(static_cast<double>(done - before), fmt::format("image {} of {}", done, all));
    before = done;
  });
  if (progress) progress->finish();
  io::Json rows = io::Json::array();
  for (const auto& [split, pictures, bad, files] : encoded) {
    given.output.text() << fmt::format("{:<6} {} pictures in {} files{}\n", split, pictures, files,
                                       bad > 0 ? fmt::format("; {} could not be read", bad) : "");
    rows.push_back({{"split", split}, {"pictures", pictures}, {"bad_images", bad}, {"files", files}});
  }
  given.output.text() << fmt::format("latents: {}\n", options.out);
  given.output.json({{"out", options.out}, {"splits", rows}});
}

}  // namespace

void add_encode(CLI::App& program, Outcome& /*outcome*/) {
  auto* command = program.add_subcommand("encode", "Latents of images by an autoencoder, to train a generator on");
  auto given = std::make_shared<Encode>();
  tasks::EncodeOptions& options = given->options;
  command->add_option("--data", options.data, "Images as SPLIT/CLASS/*.jpg|png: a folder or a .tar[.gz]")
      ->required()
      ->check(existing_path())
      ->type_name("PATH");
  command->add_option("--vae", given->vae, "Autoencoder of Stable Diffusion: its folder, or its .safetensors file")
      ->required()
      ->check(existing_path())
      ->type_name("PATH");
  command->add_option("--out", options.out, "New folder for the latents")->required()->type_name("FOLDER");
  command->add_option("--image-size", options.image_size, "Height and width, or one number for both, in pixels")
      ->expected(1, 2)
      ->check(within(1, 16384))
      ->type_name("PX [PX]")
      ->capture_default_str();
  command->add_option("--batch", options.batch, "Images that go through the encoder together")
      ->check(within(1, 1 << 16))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--shard", options.shard, "Images of a file")
      ->check(within(1, 1 << 24))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--seed", options.seed, "Seed of the noise in the latents")
      ->check(at_least<std::uint64_t>(0))
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--half", options.half, "Store latents in half precision");
  command->add_option("--workers", options.workers, "Threads that prepare images; 0 is one per core")
      ->check(within(0, 1024))
      ->type_name("N")
      ->capture_default_str();
  add_device_option(*command, given->device);
  add_threads_option(*command, given->threads);
  given->output.add_option(*command);
  command->callback([given] { run_encode(*given); });
}

}  // namespace mhla::cli
