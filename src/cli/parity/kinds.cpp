// The kinds of parity cases: how each is built and run.
#include "cli/parity/kinds.hpp"

#include <fmt/format.h>
#include <torch/torch.h>

#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "cli/failure.hpp"
#include "cli/parity/case.hpp"
#include "cli/support/operator_call.hpp"
#include "mhla/mixing.hpp"
#include "torch/tensors.hpp"

namespace mhla::cli::parity {
namespace {

constexpr double kTolerance = 1e-5;
constexpr std::string_view kOutput = "out/";

double scale_of(const Case& parity_case, std::int64_t key_dim) {
  if (!parity_case.has("scale")) return 1.0;
  const io::Json& scale = parity_case.member("scale");
  if (scale.is_number()) return scale.get<double>();
  if (scale == "d^-0.5") return 1.0 / std::sqrt(static_cast<double>(key_dim));
  parity_case.fail(fmt::format("config \"scale\" is {}; it may be a number or \"d^-0.5\"", scale.dump()));
}

// Causal chunkwise operator on ready features: q, k, v, mix -> o.
Outputs run_causal_op(const Case& parity_case) {
  Tokens tokens = {parity_case.tensor("in/q", 4), parity_case.tensor("in/k", 4), parity_case.tensor("in/v", 4),
                   parity_case.tensor("in/mix", 2)};
  const auto same_tokens = [&](const torch::Tensor& x) {
    return x.size(0) == tokens.q.size(0) && x.size(1) == tokens.q.size(1);
  };
  if (!same_tokens(tokens.k) || !same_tokens(tokens.v) || tokens.k.size(3) != tokens.q.size(3) ||
      tokens.k.size(2) != tokens.v.size(2))
    parity_case.fail("tensors \"in/q\", \"in/k\" and \"in/v\" do not fit together");
  if (tokens.k.scalar_type() != tokens.q.scalar_type() || tokens.v.scalar_type() != tokens.q.scalar_type())
    parity_case.fail("tensors \"in/q\", \"in/k\" and \"in/v\" are of different types");
  if (tokens.mixing.size(0) != tokens.mixing.size(1)) parity_case.fail("tensor \"in/mix\" is not square");
  Problem problem;
  problem.dtype = dispatch::dtype_of(tokens.q, parity_case.file().source() + ": tensor \"in/q\"");
  problem.batch = tokens.q.size(0);
  problem.heads = tokens.q.size(2);
  problem.kv_heads = tokens.k.size(2);
  problem.key_dim = tokens.q.size(3);
  problem.value_dim = tokens.v.size(3);
  problem.partition = Partition::line(tokens.q.size(1), parity_case.get<std::int64_t>("chunk", 1, 1 << 20));
  problem.mixing_blocks = tokens.mixing.size(0);
  problem.options.feature_map = FeatureMap::identity;
  problem.options.normalizer = Normalizer::none;
  problem.options.masking = Masking::token_causal;
  problem.options.scale = scale_of(parity_case, problem.key_dim);
  tokens.mixing = tokens.mixing.to(dispatch::scalar_type(accumulation_type(problem.dtype))).contiguous();
  return {{"o", run_operator(plan(problem, torch::get_num_threads()), tokens).o}};
}

// Reference initial mixing of a block layout: out/init_<transform>.
Outputs run_mixing_init(const Case& parity_case) {
  const auto layout = parity_case.get<std::vector<std::int64_t>>("layout");
  for (const std::int64_t blocks : layout) parity_case.check<std::int64_t>("layout", blocks, 1, 1 << 16);
  const Partition partition = Partition::grid(layout, layout);
  MixingInitOptions options;
  if (parity_case.has("exp_sigma")) options.sigma = parity_case.get("exp_sigma", 1e-6, 1e6);
  if (parity_case.has("local_thres")) options.threshold = parity_case.get("local_thres", 0.0, 1e6);
  Outputs outputs;
  constexpr std::string_view kPrefix = "init_";
  for (const auto& [name, tensor] : parity_case.file().tensors()) {
    if (!name.starts_with(kOutput)) continue;
    const std::string output = name.substr(kOutput.size());
    if (!output.starts_with(kPrefix))
      parity_case.fail(fmt::format("tensor \"{}\" is not called out/init_<transform>", name));
    if (tensor.shape != std::vector{partition.blocks(), partition.blocks()})
      parity_case.fail(fmt::format("tensor \"{}\" is not [M, M] with M = {}", name, partition.blocks()));
    outputs[output] = to_matrix(mixing_init(partition, parse_mixing_init(output.substr(kPrefix.size())), options));
  }
  return outputs;
}

// A kind of case: to teach the program another one, add a function and a line here.
struct Kind {
  std::string_view name;
  Outputs (*run)(const Case&);
};
constexpr std::array kKinds = {
    Kind{"causal_op", run_causal_op},
    Kind{"dcae", run_dcae},
    Kind{"ddpm_sampler", run_ddpm_sampler},
    Kind{"diffusion", run_diffusion},
    Kind{"dit", run_dit},
    Kind{"dit_softmax_block", run_dit_softmax_block},
    Kind{"flow_sampler", run_flow_sampler},
    Kind{"gemma2", run_gemma2},
    Kind{"gla_op", run_gla_op},
    Kind{"lm", run_lm},
    Kind{"lm_layer", run_lm_layer},
    Kind{"mixing_init", run_mixing_init},
    Kind{"sana", run_sana},
    Kind{"sd_vae", run_sd_vae},
    Kind{"umt5", run_umt5},
    Kind{"vit", run_vit},
    Kind{"wan", run_wan},
    Kind{"wan_pipeline", run_wan_pipeline},
    Kind{"wan_vae", run_wan_vae},
};

// What a library refuses is named with the file.
Outputs run(const Kind& kind, const Case& parity_case) {
  try {
    return kind.run(parity_case);
  } catch (const std::exception& error) {
    if (std::string_view(error.what()).starts_with(parity_case.file().source())) throw;
    parity_case.fail(failure_message(error));
  }
}

}  // namespace

std::string known_kinds() {
  std::string names;
  for (const Kind& kind : kKinds) names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.name);
  return names;
}

std::vector<Result> check_case(const std::filesystem::path& path) {
  const Case parity_case(path);
  const auto name = parity_case.get<std::string>("kind");
  const auto* const kind = std::ranges::find(kKinds, name, &Kind::name);
  if (kind == kKinds.end())
    parity_case.fail(fmt::format("config \"kind\" is \"{}\"; known are: {}", name, known_kinds()));
  const double limit = parity_case.has("tolerance") ? parity_case.get("tolerance", 0.0, 1.0) : kTolerance;
  const Outputs outputs = run(*kind, parity_case);
  std::vector<Result> results;
  for (const auto& [tensor_name, stored] : parity_case.file().tensors()) {
    if (!tensor_name.starts_with(kOutput)) continue;
    const std::string output = tensor_name.substr(kOutput.size());
    const auto found = outputs.find(output);
    if (found == outputs.end())
      parity_case.fail(fmt::format("tensor \"{}\": kind {} has no such output", tensor_name, name));
    const torch::Tensor expected = found->second.is_floating_point()
                                       ? parity_case.tensor(tensor_name)
                                       : parity_case.indices(tensor_name, std::numeric_limits<std::int64_t>::max());
    if (expected.sizes() != found->second.sizes())
      parity_case.fail(fmt::format("tensor \"{}\" has another shape than the result", tensor_name));
    results.push_back(
        {name, output, relative_rms(found->second, expected), largest_error(found->second, expected), limit});
  }
  if (results.empty()) parity_case.fail("there is no tensor out/<name> to compare with");
  return results;
}

}  // namespace mhla::cli::parity
