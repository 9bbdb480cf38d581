// Attention over the 16 x 16 tokens of an image in 4 x 4 blocks, checked against the definition.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mhla/attention.hpp>
#include <mhla/mixing.hpp>
#include <random>

int main() {
  constexpr std::int64_t kTokens = 256, kHeads = 4, kDim = 32;
  std::mt19937 random(0);
  std::normal_distribution<float> normal;
  std::vector<float> q(kTokens * kHeads * kDim), k(q.size()), v(q.size()), o(q.size()), expected(q.size());
  for (std::vector<float>* x : {&q, &k, &v}) std::ranges::generate(*x, [&] { return normal(random); });

  mhla::Problem problem;
  problem.heads = problem.kv_heads = kHeads;
  problem.key_dim = problem.value_dim = kDim;
  problem.partition = mhla::Partition::grid({16, 16}, {4, 4});
  problem.mixing_blocks = problem.partition.blocks();
  const std::vector<double> initial = mhla::mixing_init(problem.partition, mhla::MixingInit::paper);
  const std::vector<float> mixing(initial.begin(), initial.end());

  const mhla::Plan plan = mhla::plan(problem);
  const std::size_t bytes = (plan.forward_workspace() / 64 + 1) * 64;
  const std::unique_ptr<void, decltype(&std::free)> workspace(std::aligned_alloc(64, bytes), std::free);
  const auto tensor = [](auto* data) { return mhla::contiguous(data, kTokens, kHeads, kDim); };
  mhla::ForwardArgs args;
  args.in.q = tensor(static_cast<const void*>(q.data()));
  args.in.k = tensor(static_cast<const void*>(k.data()));
  args.in.v = tensor(static_cast<const void*>(v.data()));
  args.in.mixing = mixing.data();
  args.o = tensor(static_cast<void*>(o.data()));
  args.run = {workspace.get(), bytes};
  mhla::forward(plan, args);

  args.o = tensor(static_cast<void*>(expected.data()));
  mhla::reference::forward(problem, args);
  double error = 0, size = 0;
  for (std::size_t n = 0; n < o.size(); ++n) {
    error += std::pow(static_cast<double>(o[n]) - expected[n], 2);
    size += std::pow(static_cast<double>(expected[n]), 2);
  }
  const double relative = std::sqrt(error / size);
  std::printf("%s: relative error %.1e against the definition\n", problem.partition.describe().c_str(), relative);
  return relative < 1e-5 ? 0 : 1;
}
