// The streaming run of the demonstration.
#include "cli/demo/streaming.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <array>

#include "cli/support/measure.hpp"
#include "cli/support/operator_call.hpp"
#include "mhla/mixing.hpp"
#include "mhla/state.hpp"
#include "torch/tensors.hpp"

namespace mhla::cli {
namespace {

constexpr std::int64_t kHeads = 4;
constexpr std::int64_t kDim = 64;
constexpr std::int64_t kStreamBlock = 64;
constexpr std::int64_t kTrainedBlocks = 32;
constexpr std::int64_t kStretch = 1000;                                                // tokens per measured point
constexpr std::array kCacheLengths = {1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100};  // percent of the stream

State make_state() {
  StateConfig config;
  config.heads = config.kv_heads = kHeads;
  config.key_dim = config.value_dim = kDim;
  config.block_size = kStreamBlock;
  config.mixing_blocks = kTrainedBlocks;
  config.options.normalizer = Normalizer::none;
  config.options.masking = Masking::token_causal;
  config.options.scale = 0.125;
  config.beyond = BeyondTrained::clamp;
  const auto mixing =
      mixing_init(Partition::line(kTrainedBlocks * kStreamBlock, kStreamBlock), MixingInit::running_mean);
  const std::vector<float> narrow(mixing.begin(), mixing.end());
  return {config, narrow.data()};
}

StreamPoint softmax_point(const torch::Tensor& keys, const torch::Tensor& values, std::int64_t length) {
  const torch::NoGradGuard no_gradients;
  const torch::Tensor q = torch::randn({1, kHeads, 1, kDim});
  const torch::Tensor k = keys.slice(2, 0, length);
  const torch::Tensor v = values.slice(2, 0, length);
  std::vector<double> seconds(15);
  for (double& one : seconds) one = time_of([&] { torch::scaled_dot_product_attention(q, k, v); });
  return {length, 1e6 * spread(seconds).median, static_cast<double>(2 * length * kHeads * kDim) * sizeof(float)};
}

double median_time(const std::vector<StreamPoint>& points, std::size_t from, std::size_t count) {
  std::vector<double> times;
  for (std::size_t i = from; i < from + count; ++i) times.push_back(points[i].microseconds);
  return spread(times).median;
}

}  // namespace

StreamRun run_stream(std::int64_t tokens, const std::function<void(double)>& step) {
  StreamRun run{kHeads, kDim, kStreamBlock, kTrainedBlocks, {}, {}};
  State state = make_state();
  const torch::Tensor q = torch::randn({1, kStretch, kHeads, kDim});
  const torch::Tensor k = torch::randn({1, kStretch, kHeads, kDim});
  const torch::Tensor v = torch::randn({1, kStretch, kHeads, kDim});
  torch::Tensor o = torch::empty({1, kStretch, kHeads, kDim});
  const auto at = [](const auto& view, std::int64_t token) {
    auto moved = view;
    const auto offset =
        static_cast<std::ptrdiff_t>(token * view.token_stride * static_cast<std::int64_t>(sizeof(float)));
    using Pointer = decltype(view.data);
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const std::byte, std::byte>;
    moved.data = static_cast<Byte*>(view.data) + offset;
    return moved;
  };
  const ConstTensor q_view = dispatch::const_view(q);
  const ConstTensor k_view = dispatch::const_view(k);
  const ConstTensor v_view = dispatch::const_view(v);
  const Tensor o_view = dispatch::mutable_view(o);
  for (std::int64_t done = 0; done < tokens; done += kStretch) {
    const std::int64_t count = std::min(kStretch, tokens - done);
    const double seconds = time_of([&] {
      for (std::int64_t t = 0; t < count; ++t)
        state.step(at(q_view, t), at(k_view, t), at(v_view, t), at(o_view, t), &serial());
    });
    run.mhla.push_back({done + count, 1e6 * seconds / static_cast<double>(count), static_cast<double>(state.bytes())});
    step(0.9 * static_cast<double>(count) / static_cast<double>(tokens));
  }
  const torch::Tensor keys = torch::randn({1, kHeads, tokens, kDim});
  const torch::Tensor values = torch::randn({1, kHeads, tokens, kDim});
  for (const int percent : kCacheLengths)
    run.softmax.push_back(softmax_point(keys, values, std::max<std::int64_t>(1, tokens * percent / 100)));
  step(0.1);
  return run;
}

double flatness(const std::vector<StreamPoint>& points) {
  const std::size_t tenth = std::max<std::size_t>(1, points.size() / 10);
  return median_time(points, points.size() - tenth, tenth) / median_time(points, 0, tenth);
}

}  // namespace mhla::cli
