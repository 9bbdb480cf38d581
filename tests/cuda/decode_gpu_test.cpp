// Decoding as only a GPU can show it: a captured step replayed over block borders, and the same bits every time.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "api/decode_case.hpp"

namespace mhla::test {
namespace {

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

std::vector<DecodeConfig> configs() {
  std::vector<DecodeConfig> all;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const DType summary : {DType::f32, DType::bf16})
      for (const BeyondTrained beyond : {BeyondTrained::error, BeyondTrained::clamp, BeyondTrained::interpolate}) {
        DecodeConfig config = decode_config(dtype);
        config.device = Device::cuda;
        config.summary_dtype = summary;
        config.key_dim = 32;
        config.value_dim = 64;
        config.beyond = beyond;
        config.mixing_blocks = beyond == BeyondTrained::error ? 6 : 2;
        config.max_tokens = 24;
        all.push_back(config);
      }
  return all;
}

// One captured step of `tokens` tokens; inputs are brought to its addresses before every replay.
std::vector<double> replayed(const DecodeCase& c, std::int64_t tokens) {
  const std::int64_t steps = c.tokens / tokens;
  std::vector<double> outputs;
  const DecodeConfig& config = c.config;
  DecodeRun run(c);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check(cudaDeviceSynchronize());
  const DecodeArgs args = run.args(tokens);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  run.step(tokens, stream);
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  const auto bring = [&](const TokenTensor& x, const ConstTensor& to, std::int64_t first) {
    const auto size = static_cast<std::int64_t>(element_size(config.dtype));
    for (std::int64_t b = 0; b < config.batch; ++b)
      check(cudaMemcpy(static_cast<std::byte*>(const_cast<void*>(to.data)) + b * to.batch_stride * size,
                       x.bytes.data() + (b * to.batch_stride + first * to.token_stride) * size,
                       static_cast<std::size_t>(tokens * to.token_stride * size), cudaMemcpyHostToDevice));
  };
  for (std::int64_t n = 0; n < steps; ++n) {
    bring(c.q, args.q, n * tokens);
    bring(c.k, args.k, n * tokens);
    bring(c.v, args.v, n * tokens);
    check(cudaGraphLaunch(executable, stream));
    check(cudaStreamSynchronize(stream));
    const std::vector<double> o = run.outputs();  // the first tokens of each row are this step's
    const auto row = static_cast<std::ptrdiff_t>(o.size()) / config.batch;
    const std::int64_t size = tokens * config.heads * config.value_dim;
    for (std::int64_t b = 0; b < config.batch; ++b)
      outputs.insert(outputs.end(), o.begin() + b * row, o.begin() + b * row + size);
  }
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  check(cudaStreamDestroy(stream));
  return outputs;
}

TEST(Gpu, ACapturedDecodingStepGoesOnOverBlockBorders) {
  for (const DecodeConfig& config : configs())
    for (const std::int64_t tokens : {1, 3, 6}) {
      SCOPED_TRACE(describe(config) + ", steps of " + std::to_string(tokens));
      const DecodeCase c(config, 24);
      DecodeRun run(c);
      std::vector<double> expected;
      for (std::int64_t n = 0; n < 24; n += tokens) run.step(tokens);
      const std::vector<double> o = run.outputs();
      const std::int64_t size = config.heads * config.value_dim;
      for (std::int64_t n = 0; n < 24; n += tokens)
        for (std::int64_t b = 0; b < config.batch; ++b)
          expected.insert(expected.end(), o.begin() + (b * 24 + n) * size, o.begin() + (b * 24 + n + tokens) * size);
      EXPECT_EQ(replayed(c, tokens), expected);
    }
}

TEST(Gpu, DecodingGivesTheSameBitsEveryTime) {
  for (const DecodeConfig& config : configs()) {
    SCOPED_TRACE(describe(config));
    const DecodeCase c(config, 24);
    std::vector<double> first;
    for (int repetition = 0; repetition < 20; ++repetition) {
      DecodeRun run(c);
      for (const std::int64_t tokens : {1, 1, 5, 10, 1, 6}) run.step(tokens);
      if (repetition == 0) first = run.outputs();
      ASSERT_EQ(run.outputs(), first) << repetition;
    }
  }
}

}  // namespace
}  // namespace mhla::test
