// `mhla bench decode`: tokens per second and memory of states of language models, over context and batch.
#include "cli/bench/decode.hpp"

#include <fmt/format.h>

#include <memory>

#include "cli/bench/decode_run.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/device.hpp"
#include "cli/support/machine.hpp"
#include "cli/support/output.hpp"
#include "cli/support/progress.hpp"
#include "mhla/attention.hpp"
#include "models/lm/lm_design.hpp"

namespace mhla::cli::bench {
namespace {

struct DecodeOptions {
  std::string device = "cpu", model = "lm_340m", beyond = "clamp", dtype, summaries = "f32";
  std::vector<std::string> attention = {"softmax", "mhla"};
  std::vector<std::int64_t> contexts = {2048, 32768, 131072}, batches = {1, 64, 512};
  std::int64_t blocks = 32;
  int steps = 64, threads = 0;
  bool quick = false;
  Output output;

  bool on_gpu() const { return device == "cuda"; }
};

torch::ScalarType type_named(const std::string& dtype) { return dtype == "bf16" ? torch::kBFloat16 : torch::kFloat; }

DecodeOptions with_defaults(DecodeOptions options) {
  if (options.on_gpu() && !torch::cuda::is_available())
    throw UsageError(
        "--device is cuda, but there is no GPU, no driver, or this program's torch was built without CUDA");
  if (options.dtype.empty()) options.dtype = options.on_gpu() ? "bf16" : "f32";
  if (options.summaries == "bf16" && options.dtype != "bf16")
    throw UsageError(fmt::format("--summaries is bf16; with --dtype {} it must be f32", options.dtype));
  if (options.quick) options.contexts = {128, 1024}, options.batches = {1, 2}, options.blocks = 4, options.steps = 4;
  return options;
}

std::shared_ptr<models::Lm> made_model(const DecodeOptions& options, const std::string& attention) {
  models::LmOptions result;
  result.model = options.model;
  result.attention = {attention};
  result.blocks = options.blocks;
  result.beyond = options.beyond;
  if (options.quick) result.vocabulary = 256, result.width = 64, result.depth = 2, result.heads = 2;
  torch::manual_seed(1);
  auto model = std::make_shared<models::Lm>(result);
  model->to(options.on_gpu() ? torch::kCUDA : torch::kCPU, type_named(options.dtype));
  model->eval();
  return model;
}

int run_decode(const DecodeOptions& given) {
  const DecodeOptions options = with_defaults(given);
  use_threads(options.threads);
  std::vector<std::shared_ptr<models::Lm>> made;
  made.reserve(options.attention.size());
  for (const std::string& attention : options.attention) made.push_back(made_model(options, attention));
  std::vector<DecodeRow> rows;
  Progress progress("bench decode",
                    static_cast<double>(options.batches.size() * options.contexts.size() * made.size()));
  for (const std::int64_t batch : options.batches)
    for (const std::int64_t context : options.contexts)
      for (const auto& model : made) {
        const std::string what = fmt::format("{}, {} of {} tokens", model->options.attention.front(), batch, context);
        progress.advance(0.0, what);
        rows.push_back(run_decode_benchmark(
            *model, {.device = options.on_gpu() ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU),
                     .summaries = type_named(options.summaries),
                     .context = context,
                     .batch = batch,
                     .steps = options.steps}));
        progress.advance(1.0, what);
      }
  progress.finish();
  io::Json json = io::Json::array();
  for (const DecodeRow& row : rows) json.push_back(row.json());
  options.output.text() << fmt::format("{}, {}; {}\n\n", options.model, options.dtype,
                                       options.on_gpu() ? device_description(Device::cuda, 0) : machine_line())
                        << decode_table(rows);
  options.output.json(json);
  return 0;
}

}  // namespace

void add_decode(CLI::App& bench, Outcome& outcome) {
  auto options = std::make_shared<DecodeOptions>();
  auto* command = bench.add_subcommand("decode", "Time language models that write one token after the other");
  add_cpu_or_cuda_option(*command, options->device);
  command->add_option("--model", options->model, "Language model")
      ->check(CLI::IsMember(models::lm_names()))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--attention", options->attention, "Attentions to compare")
      ->delimiter(',')
      ->check(CLI::IsMember({"softmax", "linear", "gla", "mhla"}))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--context", options->contexts, "Tokens that every sequence has seen")
      ->delimiter(',')
      ->check(within(1, 1 << 24))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--batch", options->batches, "Sequences")
      ->delimiter(',')
      ->check(within(1, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--blocks", options->blocks, "Blocks of 64 tokens MHLA was trained for, M")
      ->check(within(1, 1 << 14))
      ->type_name("COUNT")
      ->capture_default_str();
  command->add_option("--beyond", options->beyond, "What MHLA does with more blocks; clamp keeps M summaries")
      ->check(CLI::IsMember({"clamp", "running-mean", "interpolate"}))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "Element type of weights, activations and caches")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->type_name("NAME")
      ->default_str("f32, on a GPU bf16");
  command->add_option("--summaries", options->summaries, "Element type of MHLA's summaries; bf16 beside --dtype bf16")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--steps", options->steps, "Tokens to time, of every sequence")
      ->check(within(1, 1 << 16))
      ->type_name("N")
      ->capture_default_str();
  add_threads_option(*command, options->threads);
  command->add_flag("--quick", options->quick, "A tiny model and short contexts, to see that everything works");
  options->output.add_option(*command);
  command->callback([options, &outcome] { outcome.exit_code = run_decode(*options); });
}

}  // namespace mhla::cli::bench
