// `mhla bench model`: throughput and memory of whole models over resolution and M, per attention.
#include "cli/bench/model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>

#include "cli/bench/model_run.hpp"
#include "cli/bench/model_tables.hpp"
#include "cli/failure.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/device.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/measure.hpp"
#include "cli/support/output.hpp"
#include "cli/support/progress.hpp"
#include "mhla/attention.hpp"
#include "models/classifiers.hpp"
#include "models/generators.hpp"
#include "models/lm/lm_design.hpp"

namespace mhla::cli::bench {
namespace {

struct ModelOptions {
  std::string device = "cpu", preset = "paper", dtype;
  std::vector<std::string> models = {"deit_small"};
  std::vector<std::string> attention = {"softmax", "linear", "mhla"};
  std::vector<std::string> passes = {"infer", "train"};
  std::vector<std::int64_t> sizes, tokens, blocks = {4};
  std::int64_t patch = 0, batch = 0, block_size = 64;
  bool without_lepe = false, recompute = false, quick = false, profile = false;
  int threads = 0;
  std::optional<double> min_time;
  std::string charts;
  Output output;

  bool on_gpu() const { return device == "cuda"; }
};

// Tokens of a batch unless its size is given: enough to fill the device; of the largest generator, half its memory.
constexpr std::int64_t kBatchTokensGpu = 65536, kGeneratorBatchTokensGpu = 32768, kBatchTokensCpu = 1024;
constexpr std::int64_t kQuickTokens = 128;

torch::ScalarType scalar_type_of(const std::string& dtype) {
  return dtype == "bf16" ? torch::kBFloat16 : torch::kFloat;
}

ModelOptions with_defaults(ModelOptions options) {
  if (options.on_gpu() && !torch::cuda::is_available())
    throw UsageError(
        "--device is cuda, but there is no GPU, no driver, or this program's torch was built without CUDA");
  if (options.dtype.empty()) options.dtype = options.on_gpu() ? "bf16" : "f32";
  if (options.quick) options.batch = 1, options.min_time = 0.02;
  if (!options.min_time) options.min_time = options.on_gpu() ? 0.5 : 2.0;
  return options;
}

// The model with the first attention and number of blocks.
WorkloadOptions workload_of(const ModelOptions& options, const std::string& model) {
  return {.model = model,
          .preset = options.preset,
          .patch = options.patch,
          .block_size = options.block_size,
          .local = !options.without_lepe,
          .recompute = options.recompute,
          .tiny = options.quick};
}

std::vector<std::int64_t> sizes_of(const ModelOptions& options, const WorkloadOptions& workload) {
  if (is_language_model(workload.model)) {
    if (options.quick) return {kQuickTokens};
    if (!options.tokens.empty()) return options.tokens;
    return options.on_gpu() ? std::vector<std::int64_t>{2048, 16384, 65536} : std::vector<std::int64_t>{1024};
  }
  const std::int64_t patch = patch_pixels(workload);
  if (options.quick) return {4 * patch};
  for (const std::int64_t size : options.sizes)
    if (is_generator(workload.model) && size % patch != 0)
      throw UsageError(fmt::format("--size is {}; with {} it must be a multiple of {}, a patch of latents", size,
                                   workload.model, patch));
  if (!options.sizes.empty()) return options.sizes;
  std::vector<std::int64_t> sizes = {256, 512};
  if (options.on_gpu()) sizes.push_back(1024);
  if (options.on_gpu() && is_generator(workload.model)) sizes.push_back(2048);
  return sizes;
}

std::int64_t batch_of(const ModelOptions& options, const WorkloadOptions& workload, std::int64_t size) {
  if (options.batch > 0) return options.batch;
  if (is_language_model(workload.model))
    return std::max<std::int64_t>(1, (options.on_gpu() ? kBatchTokensGpu : kBatchTokensCpu) / size);
  const std::int64_t patch = patch_pixels(workload), side = (size + patch - 1) / patch;
  const std::int64_t tokens = !options.on_gpu()              ? kBatchTokensCpu
                              : is_generator(workload.model) ? kGeneratorBatchTokensGpu
                                                             : kBatchTokensGpu;
  return std::max<std::int64_t>(1, tokens / (side * side));
}

// The attentions at one size; MHLA once for every number of blocks the grid has room for. leave_out hears of the
// others.
template <typename LeaveOut>
std::vector<WorkloadOptions> contestants_at(const ModelOptions& options, WorkloadOptions one, LeaveOut&& leave_out) {
  std::vector<WorkloadOptions> result;
  if (is_language_model(one.model)) {
    one.blocks = (one.size + one.block_size - 1) / one.block_size;
    for (const std::string& attention : options.attention) one.attention = attention, result.push_back(one);
    return result;
  }
  const std::int64_t patch = patch_pixels(one);
  for (const std::string& attention : options.attention) {
    one.attention = attention;
    for (const std::int64_t blocks : options.blocks) {
      one.blocks = blocks;
      const bool room = blocks * patch <= one.size;
      if (attention != "mhla" ? blocks == options.blocks.front() : room) result.push_back(one);
      if (attention != "mhla") result.back().blocks = 1;
      if (attention == "mhla" && !room)
        leave_out(fmt::format("mhla at {} px: {} blocks of patches of {} need {} px", one.size, blocks, patch,
                              blocks * patch));
    }
  }
  return result;
}

struct ModelFindings {
  std::vector<ModelRow> rows;
  std::vector<std::string> left_out, failed;
};

ModelFindings measure(const ModelOptions& options, const std::string& model) {
  ModelFindings findings;
  Shelf shelf;
  WorkloadOptions workload = workload_of(options, model);
  const std::vector<std::int64_t> sizes = sizes_of(options, workload);
  Progress progress("bench " + model, static_cast<double>(sizes.size() * options.passes.size()));
  for (const std::int64_t size : sizes)
    for (const std::string& pass : options.passes) {
      const std::string what = fmt::format("{} {} {}", size, is_language_model(model) ? "tokens" : "px", pass);
      progress.advance(0.0, what);
      workload.size = size;
      const ModelSettings settings{
          .device = options.on_gpu() ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU),
          .dtype = scalar_type_of(options.dtype),
          .pass = pass,
          .batch = batch_of(options, workload, size),
          .min_seconds = *options.min_time,
          .profile = options.profile};
      try {
        const auto leave_out = [&](const std::string& why) {
          findings.left_out.push_back(fmt::format("{} {}", pass, why));
        };
        const auto rows = run_model_benchmark(contestants_at(options, workload, leave_out), settings, shelf);
        findings.rows.insert(findings.rows.end(), rows.begin(), rows.end());
      } catch (const std::exception& error) {
        findings.failed.push_back(fmt::format("{}: {}", what, failure_message(error)));
      }
      progress.advance(1.0, what);
    }
  progress.finish();
  return findings;
}

void check_model(const ModelOptions& options, const std::string& model) {
  sizes_of(options, workload_of(options, model));  // checks them
  if (std::ranges::count(options.passes, "guided") > 0 && !is_generator(model))
    throw UsageError(fmt::format("--passes has guided; {} is no generator and may have infer and train", model));
}

std::string title_of(const ModelOptions& options, const std::string& model) {
  const std::string details =
      is_language_model(model) ? fmt::format("blocks of {} tokens", options.block_size)
                               : fmt::format("{}, patch {}", options.preset, patch_pixels(workload_of(options, model)));
  return fmt::format("{}, {}, {}; {}", model, details, options.dtype,
                     options.on_gpu() ? device_description(Device::cuda, 0) : machine_line());
}

int run_model(const ModelOptions& given) {
  const ModelOptions options = with_defaults(given);
  use_threads(options.threads);
  keep_freed_memory();
  at::globalContext().setBenchmarkCuDNN(true);
  for (const std::string& model : options.models) check_model(options, model);
  std::ostream& text = options.output.text();
  io::Json json = io::Json::array();
  bool failed = false;
  for (const std::string& model : options.models) {
    const ModelFindings findings = measure(options, model);
    if (!json.empty()) text << '\n';
    text << title_of(options, model) << "\n\n" << model_table(findings.rows) << mhla_summary(findings.rows);
    for (const ModelRow& row : findings.rows)
      if (!row.profile.empty())
        text << fmt::format("\n{} with {}, {}, N = {}:\n\n", model, row.label(), row.pass, row.tokens)
             << profile_table(row.profile);
    for (const std::string& why : findings.left_out) text << "left out: " << why << '\n';
    for (const std::string& why : findings.failed) text << "FAILED: " << why << '\n';
    for (const ModelRow& row : findings.rows) json.push_back(row.json());
    failed = failed || !findings.failed.empty();
    if (options.charts.empty()) continue;
    const std::filesystem::path folder = options.charts;
    draw_model_charts(findings.rows, options.models.size() > 1 ? folder / model : folder);
  }
  options.output.json(json);
  if (!options.charts.empty()) text << fmt::format("\nThroughput and memory over N: {}\n", options.charts);
  return failed ? 1 : 0;
}

std::vector<std::string> model_choices() {
  std::vector<std::string> names = models::classifier_names();
  std::ranges::copy(models::generator_names(), std::back_inserter(names));
  std::ranges::copy(models::lm_names(), std::back_inserter(names));
  return names;
}

}  // namespace

void add_model(CLI::App& bench, Outcome& outcome) {
  auto options = std::make_shared<ModelOptions>();
  auto* command = bench.add_subcommand("model", "Time whole models with softmax, linear attention and MHLA");
  add_cpu_or_cuda_option(*command, options->device);
  command
      ->add_option("--model", options->models,
                   "Models to run: classifiers, generators, which draw latents, and language models")
      ->delimiter(',')
      ->check(CLI::IsMember(model_choices()))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--preset", options->preset, "Details as in the paper, or as in the authors' code")
      ->check(CLI::IsMember({"paper", "authors"}))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--attention", options->attention, "Attentions to compare; gla is for dig and language models")
      ->delimiter(',')
      ->check(CLI::IsMember({"softmax", "linear", "gla", "mhla"}))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--size", options->sizes, "Sides of square images in pixels")
      ->delimiter(',')
      ->check(within(1, 16384))
      ->type_name("PX")
      ->default_str("256 512, on a GPU also 1024, of generators 2048");
  command->add_option("--tokens", options->tokens, "Tokens of a sequence of language models")
      ->delimiter(',')
      ->check(within(1, 1 << 20))
      ->type_name("N")
      ->default_str("1024, on a GPU 2048 16384 65536");
  command->add_option("--block-size", options->block_size, "Tokens in a block of MHLA in language models")
      ->check(within(1, 1 << 16))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--patch", options->patch, "Side of a patch in pixels, of generators in latents")
      ->check(within(1, 1024))
      ->type_name("PX")
      ->default_str("16, of generators their own");
  command->add_option("--blocks", options->blocks, "Blocks per axis of MHLA; M is the square")
      ->delimiter(',')
      ->check(within(1, 1024))
      ->type_name("COUNT")
      ->capture_default_str();
  command
      ->add_option("--passes", options->passes,
                   "Passes to run: infer is a forward pass, guided one of a generator with classifier-free guidance, "
                   "train a whole step with AdamW")
      ->delimiter(',')
      ->check(CLI::IsMember({"infer", "guided", "train"}))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--batch", options->batch, "Images or sequences per batch")
      ->check(within(1, 1 << 20))
      ->type_name("N")
      ->default_str("as many as have 1,024 tokens, on a GPU 65,536, of generators 32,768");
  command->add_option("--dtype", options->dtype, "Element type; training in bf16 is autocast over float32 parameters")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->type_name("NAME")
      ->default_str("f32, on a GPU bf16");
  command->add_flag("--no-lepe", options->without_lepe, "Leave out the local convolution on v, in all classifiers");
  command->add_flag("--recompute", options->recompute,
                    "Recompute the activations of blocks in the backward pass: less memory, more time");
  add_threads_option(*command, options->threads);
  command->add_option("--min-time", options->min_time, "Seconds of timing per model")
      ->check(within(0.0, 3600.0))
      ->type_name("SECONDS")
      ->default_str("2, on a GPU 0.5");
  command->add_flag("--profile", options->profile,
                    "Also list the kernels of one run by their time, on the CPU torch's operators");
  command->add_flag("--quick", options->quick, "A tiny model and short timing, to see that everything works");
  command
      ->add_option("--charts", options->charts,
                   "Also draw throughput, and memory per image or sequence, over N into this folder, as SVG")
      ->type_name("FOLDER");
  options->output.add_option(*command);
  command->callback([options, &outcome] { outcome.exit_code = run_model(*options); });
}

}  // namespace mhla::cli::bench
