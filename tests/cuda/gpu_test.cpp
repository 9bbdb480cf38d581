// What only a GPU can show: streams, graphs, TF32, indices beyond 32 bits.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>
#include <thread>

#include "api/operator_case.hpp"
#include "support/expect_error.hpp"

namespace mhla::test {
namespace {

void check(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

Problem problem(const Partition& partition, Masking masking = Masking::none) {
  Problem p;
  p.device = Device::cuda;
  p.dtype = DType::f32;
  p.batch = 2;
  p.heads = 4;
  p.kv_heads = 2;
  p.key_dim = 32;
  p.value_dim = 48;
  p.partition = partition;
  p.mixing_blocks = partition.blocks();
  p.options.masking = masking;
  p.options.eps = 1e-3;
  return p;
}

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// o and the gradients of q, k, v and mixing.
using Results = std::array<std::vector<double>, 5>;

Results values_of(const Outputs& out, const Gradients& g) {
  return {out.o.values(), g.q.values(), g.k.values(), g.v.values(), g.mixing.values()};
}

Results results_of(const OperatorCase& c) {
  const Outputs out = c.forward();
  return values_of(out, c.backward(out.o));
}

// A forward and a backward call with all their memory on the device.
class DeviceCall {
 public:
  explicit DeviceCall(const OperatorCase& c)
      : plan_(plan(c.problem)), out_(c.empty_outputs()), gradients_(c.empty_gradients()),
        forward_workspace_(plan_.forward_workspace()), backward_workspace_(plan_.backward_workspace()) {
    for (const Buffer& input : c.inputs_and_gradients()) copies_.add(input);
    for (const Buffer& output :
         {buffer(out_.o), buffer(gradients_.q), buffer(gradients_.k), buffer(gradients_.v), buffer(gradients_.mixing)})
      copies_.add_output(output);
    forward_ = c.forward_args(out_);
    backward_ = c.backward_args(out_.o, gradients_);
    copies_.redirect(forward_);
    copies_.redirect(backward_);
  }

  void enqueue(cudaStream_t stream) {
    forward_.run = {forward_workspace_.data(), forward_workspace_.bytes(), nullptr, stream};
    backward_.run = {backward_workspace_.data(), backward_workspace_.bytes(), nullptr, stream};
    mhla::forward(plan_, forward_);
    mhla::backward(plan_, backward_);
  }

  // The address of q on the device, for a test that changes it behind the call.
  void* q() const { return const_cast<void*>(forward_.in.q.data); }

  Results results() {
    copies_.download_outputs();
    return values_of(out_, gradients_);
  }

 private:
  Plan plan_;
  Outputs out_;
  Gradients gradients_;
  DeviceMemory forward_workspace_, backward_workspace_;
  DeviceCopies copies_;
  ForwardArgs forward_;
  BackwardArgs backward_;
};

// Heads that the kernels for one chip take over from the portable ones.
Problem whole_tiles(const Partition& partition, DType dtype) {
  Problem p = problem(partition);
  p.dtype = dtype;
  p.key_dim = p.value_dim = 64;
  return p;
}

// As many of them as it takes for their summaries to stay on the chip.
Problem many_heads(const Partition& partition, DType dtype, std::int64_t batch, std::int64_t heads, std::int64_t dim) {
  Problem p = whole_tiles(partition, dtype);
  p.batch = batch;
  p.heads = p.kv_heads = heads;
  p.key_dim = p.value_dim = dim;
  return p;
}

// Blocks of 64 tokens, as language models have them.
Problem causal_heads(DType dtype, std::int64_t key_dim, std::int64_t value_dim, int blocks = 4) {
  Problem p = problem(Partition::line(blocks * 64, 64), Masking::token_causal);
  p.dtype = dtype;
  p.kv_heads = p.heads;
  p.key_dim = key_dim;
  p.value_dim = value_dim;
  p.options.feature_map = FeatureMap::identity;
  p.options.feature_eps = 0;
  p.options.normalizer = Normalizer::none;
  p.options.scale = 0.125;
  return p;
}

const std::vector<Problem>& problems() {
  static const std::vector<Problem> kProblems = [] {
    std::vector<Problem> all;
    for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      all.push_back(problem(Partition::grid({16, 16}, {4, 4})));
      all.push_back(problem(Partition::line(300, 64), Masking::token_causal));
      all.push_back(problem(Partition::grid({16, 16}, {4, 4})));
      all.back().options.algorithm = Algorithm::dense;
      for (std::size_t i = all.size() - 3; i < all.size(); ++i) all[i].dtype = dtype;
    }
    for (const DType dtype : {DType::bf16, DType::f16})
      for (const auto& partition : {Partition::grid({32, 32}, {4, 4}), Partition::grid({16, 16}, {4, 4})})
        all.push_back(whole_tiles(partition, dtype));
    all.push_back(many_heads(Partition::line(128, 64), DType::bf16, 12, 6, 64));
    all.push_back(many_heads(Partition::line(128, 64), DType::bf16, 6, 24, 32));
    all.push_back(causal_heads(DType::bf16, 64, 128));
    for (const DType dtype : {DType::bf16, DType::f16}) {
      all.push_back(causal_heads(dtype, 128, 256, dtype == DType::bf16 ? 4 : 9));
      all.back().batch = 5;  // enough for summaries to stay on the chip
    }
    return all;
  }();
  return kProblems;
}

TEST(Gpu, WorkIsDoneInTheOrderOfTheGivenStream) {
  for (const Problem& p : problems()) {
    SCOPED_TRACE(describe(p));
    const OperatorCase c(p, 1);
    DeviceCall call(c);
    const Buffer q = buffer(c.q);
    check(cudaMemset(call.q(), 0xff, q.bytes));
    check(cudaDeviceSynchronize());
    const Stream stream;
    // q arrives late on this stream; work on any other would read the poison.
    check(
        cudaLaunchHostFunc(stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }, nullptr));
    check(cudaMemcpyAsync(call.q(), q.data, q.bytes, cudaMemcpyHostToDevice, stream));
    call.enqueue(stream);
    EXPECT_EQ(call.results(), results_of(c));
  }
}

TEST(Gpu, ACapturedGraphReplaysOnNewInputs) {
  for (const Problem& p : problems()) {
    SCOPED_TRACE(describe(p));
    const OperatorCase c(p, 2);
    DeviceCall call(c);
    const Stream stream;
    call.enqueue(stream);  // whatever is set up once
    check(cudaStreamSynchronize(stream));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    call.enqueue(stream);
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&executable, graph, 0));
    for (const unsigned seed : {3U, 4U}) {
      OperatorCase changed = c;
      changed.q = OperatorCase(p, seed).q;
      const Buffer q = buffer(changed.q);
      check(cudaMemcpy(call.q(), q.data, q.bytes, cudaMemcpyHostToDevice));
      check(cudaGraphLaunch(executable, stream));
      check(cudaStreamSynchronize(stream));
      EXPECT_EQ(call.results(), results_of(changed));
    }
    check(cudaGraphExecDestroy(executable));
    check(cudaGraphDestroy(graph));
  }
}

TEST(Gpu, AHundredRunsGiveTheSameBits) {
  for (const Problem& p : problems()) {
    SCOPED_TRACE(describe(p));
    const OperatorCase c(p, 5);
    const Results first = results_of(c);
    DeviceCall call(c);
    for (int repetition = 0; repetition < 100; ++repetition) {
      call.enqueue(nullptr);
      ASSERT_EQ(call.results(), first) << repetition;
    }
  }
}

TEST(Gpu, Tf32ProductsAreAsExactAsTheirMantissa) {
  constexpr double kTolerance = 2e-3;  // that of f16, whose mantissa has as many bits
  for (Problem p : problems()) {
    if (p.dtype != DType::f32) continue;
    p.options.float32_products = Float32Products::tf32;
    SCOPED_TRACE(describe(p));
    const OperatorCase c(p, 6);
    const OperatorCase wide = c.in(DType::f64);
    const Outputs expected = wide.reference_forward(), actual = c.forward();
    const Gradients want = wide.reference_backward(expected.o), got = c.backward(actual.o);
    EXPECT_LE(relative_rms(actual.o.values(), expected.o.values()), kTolerance);
    EXPECT_LE(relative_rms(got.q.values(), want.q.values()), 4 * kTolerance);
    EXPECT_LE(relative_rms(got.k.values(), want.k.values()), 4 * kTolerance);
    EXPECT_LE(relative_rms(got.v.values(), want.v.values()), 4 * kTolerance);
    EXPECT_LE(relative_rms(got.mixing.values(), want.mixing.values()), 4 * kTolerance);
  }
}

// More than 2^31 elements: equal batch rows must give equal results, also those that lie beyond.
TEST(Gpu, IndicesBeyond32BitsReachTheirElements) {
  Problem row = problem(Partition::grid({64, 64}, {4, 4}));
  row.dtype = DType::bf16;
  row.batch = 1;
  row.heads = row.kv_heads = 8;
  row.key_dim = row.value_dim = 64;
  Problem many = row;
  many.batch = 1030;  // 1030 x 4096 x 8 x 64 = 2.16e9
  const OperatorCase c(row, 7);
  const std::size_t row_bytes = c.q.bytes.size(), bytes = row_bytes * static_cast<std::size_t>(many.batch);
  const Plan plan = mhla::plan(many);
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total));
  const std::size_t needed = 8 * bytes + plan.forward_workspace() + plan.backward_workspace() + (std::size_t{1} << 30);
  if (free < needed)
    GTEST_SKIP() << "needs " << (needed >> 30) << " GiB of GPU memory; " << (free >> 30) << " are free";

  const auto repeated = [&](const TokenTensor& x) {
    DeviceMemory memory(bytes);
    check(cudaMemcpy(memory.data(), x.bytes.data(), row_bytes, cudaMemcpyHostToDevice));
    auto* first = static_cast<std::byte*>(memory.data());
    for (std::int64_t b = 1; b < many.batch; ++b)
      check(
          cudaMemcpyAsync(first + static_cast<std::size_t>(b) * row_bytes, first, row_bytes, cudaMemcpyDeviceToDevice));
    return memory;
  };
  const DeviceMemory q = repeated(c.q), k = repeated(c.k), v = repeated(c.v), d_o = repeated(c.d_o);
  const DeviceMemory o(bytes), d_q(bytes), d_k(bytes), d_v(bytes);
  DeviceMemory mixing(buffer(c.mixing).bytes);
  mixing.upload(c.mixing.data());
  const DeviceMemory forward_workspace(plan.forward_workspace()), backward_workspace(plan.backward_workspace());
  const auto view = [&]<typename Pointer>(Pointer data) {
    return contiguous(data, row.partition.tokens(), row.heads, row.key_dim);
  };
  const auto input = [&](const DeviceMemory& memory) { return view(static_cast<const void*>(memory.data())); };
  const auto output = [&](const DeviceMemory& memory) { return view(memory.data()); };
  const Inputs in{
      .q = input(q), .k = input(k), .v = input(v), .q_den = {}, .k_den = {}, .mixing = mixing.data(), .initial = {}};
  mhla::forward(plan, {.in = in,
                       .o = output(o),
                       .final_state = {},
                       .run = {forward_workspace.data(), forward_workspace.bytes(), nullptr, nullptr}});
  mhla::backward(plan, {.in = in,
                        .o = input(o),
                        .d_o = input(d_o),
                        .d_final = {},
                        .d_q = output(d_q),
                        .d_k = output(d_k),
                        .d_v = output(d_v),
                        .d_q_den = {},
                        .d_k_den = {},
                        .d_mixing = nullptr,
                        .d_initial = {},
                        .run = {backward_workspace.data(), backward_workspace.bytes(), nullptr, nullptr}});
  check(cudaDeviceSynchronize());

  std::vector<std::byte> first(row_bytes), other(row_bytes);
  for (const DeviceMemory* memory : {&o, &d_q, &d_k, &d_v}) {
    const auto* rows = static_cast<const std::byte*>(memory->data());
    check(cudaMemcpy(first.data(), rows, row_bytes, cudaMemcpyDeviceToHost));
    for (const std::int64_t b :
         {std::int64_t{511}, std::int64_t{512}, std::int64_t{1023}, std::int64_t{1024}, many.batch - 1}) {
      check(
          cudaMemcpy(other.data(), rows + static_cast<std::size_t>(b) * row_bytes, row_bytes, cudaMemcpyDeviceToHost));
      EXPECT_EQ(std::memcmp(first.data(), other.data(), row_bytes), 0) << "row " << b;
    }
  }
  OperatorCase wide = c.in(DType::f64);
  wide.problem.device = Device::cpu;
  const Outputs expected = wide.forward();
  TokenTensor row_of_o(row.dtype, 1, row.partition.tokens(), row.heads, row.value_dim);
  check(cudaMemcpy(row_of_o.bytes.data(), o.data(), row_bytes, cudaMemcpyDeviceToHost));
  EXPECT_LE(relative_rms(row_of_o.values(), expected.o.values()), 8e-3);
}

// Against the same call in double precision on the processor, as the reference would take minutes; with and without
// summaries that forward keeps, where it does.
void expect_as_on_the_processor(const OperatorCase& c) {
  SCOPED_TRACE(describe(c.problem));
  OperatorCase wide = c.in(DType::f64);
  wide.problem.device = Device::cpu;
  const int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const double tolerance = c.problem.dtype == DType::f16 ? 2e-3 : 8e-3, gradient_tolerance = 4 * tolerance;
  const Outputs expected = wide.forward(threads);
  const Gradients want = wide.backward(expected.o, threads);
  std::vector<void*> places = {nullptr};
  std::optional<DeviceMemory> kept;
  if (const std::size_t bytes = plan(c.problem).kept_bytes(); bytes > 0) places.push_back(kept.emplace(bytes).data());
  for (void* const place : places) {
    SCOPED_TRACE(place == nullptr ? "nothing kept" : "summaries kept");
    const Outputs actual = c.forward(2, place);
    EXPECT_LE(relative_rms(actual.o.values(), expected.o.values()), tolerance) << "o";
    const Gradients got = c.backward(actual.o, 2, place);
    EXPECT_LE(relative_rms(got.q.values(), want.q.values()), gradient_tolerance) << "d_q";
    EXPECT_LE(relative_rms(got.k.values(), want.k.values()), gradient_tolerance) << "d_k";
    EXPECT_LE(relative_rms(got.v.values(), want.v.values()), gradient_tolerance) << "d_v";
    EXPECT_LE(relative_rms(got.mixing.values(), want.mixing.values()), gradient_tolerance) << "d_mixing";
  }
}

// A matrix of more than 2^31 entries: only its last entry of the first column is not zero, so the last token reads the
// first one and nothing else.
TEST(Gpu, AMixingMatrixBeyond32BitsIsReadAtItsPlaces) {
  constexpr std::int64_t kBlocks = 46400;  // 46400^2 = 2.15e9
  Problem p = problem(Partition::line(kBlocks, 1));
  p.dtype = DType::bf16;
  p.batch = p.heads = p.kv_heads = 1;
  p.key_dim = p.value_dim = 8;
  p.options.algorithm = Algorithm::summary;
  p.options.normalizer = Normalizer::none;
  p.options.feature_map = FeatureMap::identity;
  const Plan plan = mhla::plan(p);
  const std::size_t matrix_bytes = sizeof(float) * kBlocks * kBlocks;
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total));
  const std::size_t needed = matrix_bytes + plan.forward_workspace() + (std::size_t{1} << 30);
  if (free < needed)
    GTEST_SKIP() << "needs " << (needed >> 30) << " GiB of GPU memory; " << (free >> 30) << " are free";

  TokenTensor ones(p.dtype, 1, kBlocks, 1, p.key_dim), o = ones;
  ones.fill([] { return 1.0; });
  DeviceMemory tokens(ones.bytes.size());
  tokens.upload(ones.bytes.data());
  const DeviceMemory out(ones.bytes.size()), workspace(plan.forward_workspace()), matrix(matrix_bytes);
  const float one = 1;
  check(cudaMemset(matrix.data(), 0, matrix_bytes));
  check(cudaMemcpy(static_cast<float*>(matrix.data()) + (kBlocks - 1) * kBlocks, &one, sizeof(one),
                   cudaMemcpyHostToDevice));
  const ConstTensor input = contiguous(static_cast<const void*>(tokens.data()), kBlocks, 1, p.key_dim);
  mhla::forward(
      plan,
      {.in = {.q = input, .k = input, .v = input, .q_den = {}, .k_den = {}, .mixing = matrix.data(), .initial = {}},
       .o = contiguous(out.data(), kBlocks, 1, p.key_dim),
       .final_state = {},
       .run = {workspace.data(), workspace.bytes(), nullptr, nullptr}});
  out.download(o.bytes.data());
  for (std::int64_t i = 0; i < o.elements(); ++i)
    ASSERT_EQ(o.get(i), i / p.key_dim == kBlocks - 1 ? static_cast<double>(p.key_dim) : 0.0) << i;
}

TEST(Gpu, SizesThatKernelsCannotCountAreRefusedByName) {
  const auto refuse = [](const Partition& partition, std::int64_t batch, std::int64_t heads, const char* named) {
    Problem p = problem(partition);
    p.batch = batch;
    p.heads = p.kv_heads = heads;
    p.key_dim = p.value_dim = 1;
    for (const Algorithm algorithm : {Algorithm::summary, Algorithm::dense}) {
      p.options.algorithm = algorithm;
      expect_error([&] { (void)plan(p); }, {named, "at most"});
    }
  };
  constexpr std::int64_t kMany = std::int64_t{1} << 31;
  refuse(Partition::line(kMany, kMany), 1, 1, "its blocks");
  refuse(Partition::grid({1 << 16, 1 << 16}, {4096, 4096}), 1, 1, "partition is a grid");
  refuse(Partition::line(64, 64), kMany, 1, "heads x blocks is 2147483648 x 1 x 1");
  refuse(Partition::line(64, 64), kMany / 1024, 1024, "heads x blocks is 2097152 x 1024 x 1");
  refuse(Partition::line(4096, 1), kMany / 4096, 1, "heads x blocks is 524288 x 1 x 4096");
}

// A block of 2^32 tokens is one block, whatever the algorithm, and costs what its tokens cost.
TEST(Gpu, ABlockLongerThanAnyMemoryIsThatOfItsTokens) {
  for (const DType dtype : {DType::f32, DType::f16})
    for (const Algorithm algorithm : {Algorithm::summary, Algorithm::dense}) {
      Problem p = problem(Partition::line(100, 100));
      p.dtype = dtype;
      p.options.algorithm = algorithm;
      const OperatorCase c(p, 8);
      OperatorCase longer = c;
      longer.problem.partition = Partition::line(100, std::int64_t{1} << 32);
      SCOPED_TRACE(describe(p));
      EXPECT_LE(relative_rms(longer.forward().o.values(), c.forward().o.values()), dtype == DType::f32 ? 1e-5 : 2e-3);
      EXPECT_LT(plan(longer.problem).forward_workspace(), 1U << 24);
    }
}

TEST(Gpu, SummariesOnTheChipMatchTheProcessor) {
  struct Form {
    Problem problem;
    Normalizer normalizer;
    bool mixing_per_head = false, mixing_per_row = false;
  };
  const auto line = [](std::int64_t tokens) { return Partition::line(tokens, 64); };
  const auto blocks_of_four_tiles = Partition::grid({16, 32}, {1, 2});
  const std::vector<Form> forms = {
      {many_heads(line(192), DType::f16, 24, 6, 64), Normalizer::paper, true},
      {many_heads(line(192), DType::bf16, 12, 6, 64), Normalizer::none},
      {many_heads(line(192), DType::bf16, 24, 6, 64), Normalizer::paper, true, true},
      {many_heads(Partition::line(640, 128), DType::bf16, 23, 6, 64), Normalizer::paper},  // a block for one of four
      {many_heads(line(448), DType::f16, 23, 6, 64), Normalizer::paper},                   // for three of four
      {many_heads(line(1024), DType::bf16, 11, 6, 64), Normalizer::paper},
      {many_heads(line(1024), DType::f16, 4, 36, 32), Normalizer::none},
      {many_heads(Partition::grid({16, 16}, {2, 2}), DType::bf16, 6, 24, 32), Normalizer::paper},
      {many_heads(blocks_of_four_tiles, DType::f16, 11, 6, 64), Normalizer::paper},
      {many_heads(blocks_of_four_tiles, DType::bf16, 11, 6, 64), Normalizer::none},
  };
  unsigned seed = 70;
  for (Form form : forms) {
    Problem& p = form.problem;
    p.mixing_per_head = form.mixing_per_head;
    p.mixing_per_row = form.mixing_per_row;
    p.options.normalizer = form.normalizer;
    p.options.feature_map = form.normalizer == Normalizer::none ? FeatureMap::identity : FeatureMap::relu;
    p.options.feature_eps = form.normalizer == Normalizer::none ? 0 : 1e-2;
    expect_as_on_the_processor(OperatorCase(p, seed++));
  }
}

TEST(Gpu, CausalSummariesOnTheChipMatchTheProcessor) {
  unsigned seed = 90;
  for (const int blocks : {1, 8, 9, 19, 27, 32})
    for (const DType dtype : {DType::bf16, DType::f16}) {
      Problem p = causal_heads(dtype, 128, dtype == DType::bf16 ? 256 : 128, blocks);
      p.batch = blocks < 10 ? 12 : 3;  // several heads in turn, or one, for each pair of multiprocessors
      p.heads = p.kv_heads = dtype == DType::bf16 ? 3 : 6;
      p.mixing_per_head = blocks % 2 == 1;
      p.mixing_per_row = blocks % 3 == 0;
      expect_as_on_the_processor(OperatorCase(p, seed++));
    }
}

// Forward made o on the chip and left what that takes; the gradient of a state needs the kernels of single stages.
TEST(Gpu, BackwardWithStateFollowsAKeptForwardWithout) {
  Problem p = causal_heads(DType::bf16, 128, 256);
  p.batch = 5;
  const OperatorCase without(p, 110), with(p, 110, 0, true);
  const DeviceMemory kept(plan(p).kept_bytes());
  const TokenTensor o = without.forward(2, kept.data()).o;
  const Gradients got = with.backward(o, 2, kept.data()), want = with.backward(o);
  EXPECT_LE(relative_rms(got.q.values(), want.q.values()), 8e-3) << "d_q";
  EXPECT_LE(relative_rms(got.k.values(), want.k.values()), 8e-3) << "d_k";
  EXPECT_LE(relative_rms(got.v.values(), want.v.values()), 8e-3) << "d_v";
  EXPECT_LE(relative_rms(got.mixing.values(), want.mixing.values()), 8e-3) << "d_mixing";
}

// As in torch's backward pass: the first thing a thread ever does with the device may be a call, which asks the driver
// and not the runtime.
TEST(Gpu, AThreadMayBeginWithACall) {
  const OperatorCase c(whole_tiles(Partition::grid({32, 32}, {4, 4}), DType::bf16), 1);
  DeviceCall call(c);
  std::exception_ptr error;
  std::thread([&] {
    try {
      call.enqueue(nullptr);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  if (error) std::rethrow_exception(error);
  EXPECT_EQ(call.results(), results_of(c));
}

TEST(Gpu, AWorkspaceMustBeAlignedTo256Bytes) {
  const OperatorCase c(problem(Partition::line(256, 16)), 8);
  const Plan plan = mhla::plan(c.problem);
  Outputs out = c.empty_outputs();
  ForwardArgs args = c.forward_args(out);
  args.run = {reinterpret_cast<void*>(std::uintptr_t{64}), plan.forward_workspace(), nullptr, nullptr};
  expect_error([&] { forward(plan, args); }, {"workspace", "256"});
}

}  // namespace
}  // namespace mhla::test
