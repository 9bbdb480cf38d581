// `mhla analyze`: rank, entropy and sparsity of attention matrices, with heat maps and curves.
#include <fmt/format.h>

#include <memory>

#include "cli/analyze/run.hpp"
#include "cli/commands.hpp"
#include "cli/support/checks.hpp"
#include "cli/support/output.hpp"
#include "cli/support/progress.hpp"
#include "io/file.hpp"
#include "tensor_io/tensors.hpp"

namespace mhla::cli {
namespace {

struct AnalyzeOptions {
  std::vector<std::int64_t> grid = {32, 32};
  std::vector<std::int64_t> blocks = {4, 4};
  std::int64_t dim = 32;
  std::uint64_t seed = 1;
  std::int64_t head = 0;
  std::string input;
  std::string init = "paper";
  std::string out = "out/analyze";
  Output output;
};

constexpr std::int64_t kMostTokens = 4096;  // a singular value decomposition of N x N must stay bearable

// Finite, in double.
torch::Tensor load_values(const io::SafeTensors& file, const std::string& name) {
  const torch::Tensor tensor = io::to_torch(file, name);
  if (!tensor.is_floating_point())
    throw Error(fmt::format("{}: tensor \"{}\" is not of a floating-point type", file.source(), name));
  if (!tensor.isfinite().all().item<bool>())
    throw Error(fmt::format("{}: tensor \"{}\" holds values that are not finite", file.source(), name));
  return tensor.to(torch::kFloat64);
}

// [N, d], or one head of the first batch row of [B, N, H, D].
torch::Tensor load_tokens(const io::SafeTensors& file, const std::string& name, std::int64_t head) {
  torch::Tensor tensor = load_values(file, name);
  if (tensor.dim() == 4) {
    if (tensor.size(0) < 1 || head >= tensor.size(2))
      throw UsageError(fmt::format("--head is {}; tensor \"{}\" has {} heads", head, name, tensor.size(2)));
    tensor = tensor.select(0, 0).select(1, head);
  }
  if (tensor.dim() != 2)
    throw Error(fmt::format("{}: tensor \"{}\" has {} axes; it may be [N, d] or [B, N, H, d]", file.source(), name,
                            tensor.dim()));
  return tensor;
}

AnalysisInput make_input(const AnalyzeOptions& options) {
  AnalysisInput input;
  try {
    input.partition = Partition::grid(options.grid, options.blocks);
  } catch (const Error& error) {
    throw UsageError(fmt::format("--grid and --blocks: {}", error.what()));
  }
  const std::int64_t n = input.partition.tokens();
  if (n < 2 || n > kMostTokens)
    throw UsageError(fmt::format("--grid has {} tokens; it may have 2 to {}", n, kMostTokens));
  input.init = parse_mixing_init(options.init);
  if (options.input.empty()) {
    const analysis::TokenSample sample = analysis::sample_tokens(input.partition, options.dim, options.seed);
    input.q = sample.q;
    input.k = sample.k;
    return input;
  }
  const io::SafeTensors file = io::SafeTensors::load(options.input);
  input.q = load_tokens(file, "q", options.head);
  input.k = load_tokens(file, "k", options.head);
  if (input.q.sizes() != input.k.sizes())
    throw Error(fmt::format("{}: q and k are of different shapes", file.source()));
  if (input.q.size(0) != n)
    throw UsageError(fmt::format("--grid has {} tokens, but \"{}\" has {}", n, options.input, input.q.size(0)));
  if (file.contains("mixing")) {
    input.mixing = load_values(file, "mixing");
    const std::int64_t blocks = input.partition.blocks();
    if (input.mixing.dim() != 2 || input.mixing.size(0) != blocks || input.mixing.size(1) != blocks)
      throw UsageError(fmt::format("--blocks gives {} blocks, but tensor \"mixing\" is of another size", blocks));
  }
  return input;
}

int run_analyze(const AnalyzeOptions& options) {
  const AnalysisInput input = make_input(options);
  Progress progress("analyze", 1.0);
  const Analysis result = analyze(input, [&](double share) { progress.advance(share); });
  progress.finish();
  const std::filesystem::path folder = options.out;
  for (const auto& picture : result.heat_maps) io::write_file(folder / (picture.title + ".png"), picture.png);
  io::write_file(folder / "rank.svg", rank_chart(result).svg());
  io::write_file(folder / "entropy.svg", entropy_chart(result).svg());

  const bool good = within_bounds(result);
  std::ostream& text = options.output.text();
  text << fmt::format("{}, d = {}\n\n", input.partition.describe(), input.q.size(1))
       << table(statistics_header(), statistics_rows(result.whole))
       << (good ? "\nno rank exceeds its bound\n" : "\na rank EXCEEDS its bound\n")
       << fmt::format("heat maps and curves are in {}\n", folder.string());
  options.output.json({{"ok", good},
                       {"partition", input.partition.describe()},
                       {"dim", input.q.size(1)},
                       {"attention", statistics_json(result.whole)},
                       {"curve", statistics_json(result.curve)},
                       {"out", folder.string()}});
  return good ? 0 : 1;
}

}  // namespace

void add_analyze(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<AnalyzeOptions>();
  auto* command =
      program.add_subcommand("analyze", "Rank, entropy and sparsity of softmax, linear and MHLA attention matrices");
  command->add_option("--grid", options->grid, "Tokens per axis, one to three axes; at most 4096 tokens in all")
      ->expected(1, 3)
      ->check(within<std::int64_t>(1, kMostTokens))
      ->type_name("SIZE...")
      ->capture_default_str();
  command->add_option("--blocks", options->blocks, "Blocks per axis")
      ->expected(1, 3)
      ->check(within<std::int64_t>(1, kMostTokens))
      ->type_name("COUNT...")
      ->capture_default_str();
  command->add_option("--dim", options->dim, "Width d of generated q and k")
      ->check(within(1, 1024))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of generated q and k")
      ->check(at_least<std::uint64_t>(0))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option(
          "--input", options->input,
          "Take q and k, [N, d] or [B, N, H, d], from this .safetensors file instead, and the mixing matrix if "
          "it has a tensor mixing")
      ->check(existing_file())
      ->type_name("FILE");
  command->add_option("--head", options->head, "Head of --input to look at, in the first batch row")
      ->check(at_least<std::int64_t>(0))
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--init", options->init, "How the mixing matrix is made")
      ->check(CLI::IsMember({"paper", "linear", "cos", "exp", "gaussian", "local", "uniform"}))
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--out", options->out, "Folder for heat maps (PNG) and curves (SVG)")
      ->type_name("FOLDER")
      ->capture_default_str();
  options->output.add_option(*command);
  command->callback([options, &outcome] { outcome.exit_code = run_analyze(*options); });
}

}  // namespace mhla::cli
