// The C interface, first half: errors, threads, partitions, mixing matrices and the operator. c_api_state.cpp has the
// rest.
#include "api/c_api.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>

#include "core/sizes.hpp"
#include "mhla/mixing.hpp"
#include "mhla/version.hpp"

using namespace mhla;
using namespace mhla::c_api;

struct mhla_plan {
  Plan plan;
};

namespace mhla::c_api {

char* last_error() {
  thread_local char message[kMessageBytes] = "";
  return message;
}

BorrowedParallel::BorrowedParallel(const mhla_parallel* parallel) {
  if (parallel == nullptr) return;
  if (parallel->threads < 1)
    throw Error("parallel.threads is " + std::to_string(parallel->threads) + "; it must be at least 1");
  required(reinterpret_cast<const void*>(parallel->for_each), "parallel.for_each");
  parallel_.threads = parallel->threads;
  parallel_.for_each = [lent = *parallel](std::int64_t count, const std::function<void(std::int64_t)>& task) {
    struct Job {
      const std::function<void(std::int64_t)>& task;
      std::mutex mutex;
      std::exception_ptr failure;
    } job{task, {}, {}};
    lent.for_each(
        lent.context, count,
        [](void* context, std::int64_t index) {
          auto& job = *static_cast<Job*>(context);
          try {
            job.task(index);
          } catch (...) {
            const std::lock_guard lock(job.mutex);
            job.failure = std::current_exception();
          }
        },
        &job);
    if (job.failure) std::rethrow_exception(job.failure);
  };
}

namespace {

mhla_partition from_partition(const Partition& p) {
  mhla_partition result{};
  result.axes = p.axes();
  std::ranges::copy(p.sizes(), result.sizes);
  std::ranges::copy(p.extents(), result.extents);
  std::ranges::copy(p.blocks_per_axis(), result.blocks_per_axis);
  result.tokens = p.tokens();
  result.blocks = p.blocks();
  result.block_capacity = p.block_capacity();
  return result;
}

std::size_t checked_axes(int axes) {
  if (axes < 1 || axes > Partition::kMaxAxes) throw Error("axes is " + std::to_string(axes) + "; it may be 1, 2 or 3");
  return static_cast<std::size_t>(axes);
}

std::size_t squared(std::int64_t blocks, const char* argument) {
  require_size(argument, blocks, 0, kMostBlocks);
  return static_cast<std::size_t>(blocks * blocks);
}

std::vector<std::int64_t> to_cu_seqlens(const mhla_problem& p) {
  if (p.cu_seqlens_count > 0) required(p.cu_seqlens, "cu_seqlens");
  if (p.cu_seqlens == nullptr) return {};
  if (p.cu_seqlens_count < 2 || p.cu_seqlens_count > static_cast<std::size_t>(kMostBatch))
    throw Error("cu_seqlens_count is " + std::to_string(p.cu_seqlens_count) + "; with cu_seqlens it must be 2 to 2^32");
  return {p.cu_seqlens, p.cu_seqlens + p.cu_seqlens_count};
}

Problem to_problem(const mhla_problem& p) {
  Problem problem;
  problem.device = to_enum<Device>(p.device, "device");
  problem.dtype = to_enum<DType>(p.dtype, "dtype");
  problem.batch = p.batch;
  problem.heads = p.heads;
  problem.kv_heads = p.kv_heads;
  problem.key_dim = p.key_dim;
  problem.value_dim = p.value_dim;
  problem.partition = to_partition(p.partition);
  problem.options = to_options(p.options);
  problem.mixing_blocks = p.mixing_blocks;
  problem.mixing_per_head = p.mixing_per_head;
  problem.mixing_per_row = p.mixing_per_row;
  problem.separate_denominator = p.separate_denominator;
  problem.cu_seqlens = to_cu_seqlens(p);
  problem.initial_tokens = p.initial_tokens;
  return problem;
}

Inputs to_inputs(const mhla_inputs& in) {
  return {to_tensor(in.q),
          to_tensor(in.k),
          to_tensor(in.v),
          to_tensor(in.q_den),
          to_tensor(in.k_den),
          in.mixing,
          {in.initial.S, in.initial.z}};
}

Execution to_execution(const mhla_execution& run, const BorrowedParallel& parallel) {
  return {run.workspace, run.workspace_bytes, parallel.get(), run.stream};
}

}  // namespace
}  // namespace mhla::c_api

extern "C" {

const char* mhla_last_error(void) { return last_error(); }
const char* mhla_version(void) { return version().data(); }
const char* mhla_cpu_isa(void) {
  return guarded_or("", [] { return cpu_isa().data(); });
}
int mhla_cuda_device_count(void) {
  return guarded_or(0, [] { return device_count(Device::cuda); });
}

mhla_status mhla_set_num_threads(int threads) {
  return guarded([&] { set_num_threads(threads); });
}

mhla_status mhla_partition_line(int64_t tokens, int64_t block_size, mhla_partition* partition) {
  return guarded([&] { *required(partition, "partition") = from_partition(Partition::line(tokens, block_size)); });
}

mhla_status mhla_partition_grid(int axes, const int64_t* sizes, const int64_t* blocks, mhla_partition* partition) {
  return guarded([&] {
    const std::size_t count = checked_axes(axes);
    *required(partition, "partition") = from_partition(
        Partition::grid(std::span(required(sizes, "sizes"), count), std::span(required(blocks, "blocks"), count)));
  });
}

mhla_status mhla_partition_by_extent(int axes, const int64_t* sizes, const int64_t* extents,
                                     mhla_partition* partition) {
  return guarded([&] {
    const std::size_t count = checked_axes(axes);
    *required(partition, "partition") = from_partition(Partition::by_extent(
        std::span(required(sizes, "sizes"), count), std::span(required(extents, "extents"), count)));
  });
}

mhla_status mhla_partition_block_order(const mhla_partition* partition, int64_t* order, int64_t* offsets) {
  return guarded([&] {
    const Partition p = to_partition(*required(partition, "partition"));
    if (order != nullptr) std::ranges::copy(p.block_order(), order);
    if (offsets != nullptr) std::ranges::copy(p.block_offsets(), offsets);
  });
}

mhla_mixing_parameters mhla_default_mixing_parameters(void) {
  const MixingInitOptions defaults;
  return {defaults.sigma, defaults.threshold, defaults.value};
}

mhla_status mhla_mixing_init(const mhla_partition* partition, mhla_mixing_kind kind,
                             const mhla_mixing_parameters* parameters, double* mixing) {
  return guarded([&] {
    MixingInitOptions options;
    if (parameters != nullptr) options = {parameters->sigma, parameters->threshold, parameters->value};
    const std::vector<double> values =
        mixing_init(to_partition(*required(partition, "partition")), to_enum<MixingInit>(kind, "kind"), options);
    std::ranges::copy(values, required(mixing, "mixing"));
  });
}

mhla_status mhla_mixing_project_f32(float* mixing, int64_t blocks, bool normalize_rows, float low, float high) {
  return guarded([&] {
    project_mixing(std::span(required(mixing, "mixing"), squared(blocks, "blocks")), blocks, normalize_rows, low, high);
  });
}

mhla_status mhla_mixing_project_f64(double* mixing, int64_t blocks, bool normalize_rows, double low, double high) {
  return guarded([&] {
    project_mixing(std::span(required(mixing, "mixing"), squared(blocks, "blocks")), blocks, normalize_rows, low, high);
  });
}

mhla_status mhla_mixing_resize(const double* mixing, const mhla_partition* from, const mhla_partition* to,
                               double* resized) {
  return guarded([&] {
    const Partition p = to_partition(*required(from, "from"));
    const std::span matrix(required(mixing, "mixing"), squared(p.blocks(), "from.blocks"));
    const std::vector<double> values = resize_mixing(matrix, p, to_partition(*required(to, "to")));
    std::ranges::copy(values, required(resized, "resized"));
  });
}

mhla_status mhla_mixing_extend_causal(const double* mixing, int64_t trained, int64_t blocks, mhla_beyond beyond,
                                      double* extended) {
  return guarded([&] {
    squared(blocks, "blocks");
    const std::span matrix(required(mixing, "mixing"), squared(trained, "trained"));
    const std::vector<double> values =
        extend_causal_mixing(matrix, trained, blocks, to_enum<BeyondTrained>(beyond, "beyond"));
    std::ranges::copy(values, required(extended, "extended"));
  });
}

mhla_problem mhla_default_problem(void) {
  const Problem defaults;
  mhla_problem problem{};
  problem.device = static_cast<mhla_device>(defaults.device);
  problem.dtype = static_cast<mhla_dtype>(defaults.dtype);
  problem.batch = defaults.batch;
  problem.heads = defaults.heads;
  problem.kv_heads = defaults.kv_heads;
  problem.partition = from_partition(defaults.partition);
  problem.options = from_options(defaults.options);
  return problem;
}

mhla_tensor mhla_contiguous(void* data, int64_t tokens, int64_t heads, int64_t dim) {
  const Tensor x = contiguous(data, tokens, heads, dim);
  return {x.data, x.batch_stride, x.token_stride, x.head_stride};
}

mhla_const_tensor mhla_const_contiguous(const void* data, int64_t tokens, int64_t heads, int64_t dim) {
  const ConstTensor x = contiguous(data, tokens, heads, dim);
  return {x.data, x.batch_stride, x.token_stride, x.head_stride};
}

mhla_status mhla_plan_create(const mhla_problem* problem, int threads, mhla_plan** plan) {
  return guarded([&] {
    required(plan, "plan");
    *plan = std::make_unique<mhla_plan>(mhla_plan{mhla::plan(to_problem(*required(problem, "problem")), threads)})
                .release();
  });
}

void mhla_plan_destroy(mhla_plan* plan) { std::unique_ptr<mhla_plan>{plan}.reset(); }

mhla_algorithm mhla_plan_algorithm(const mhla_plan* plan) {
  return guarded_or<mhla_algorithm>(
      -1, [&] { return static_cast<mhla_algorithm>(required(plan, "plan")->plan.algorithm()); });
}
size_t mhla_plan_forward_workspace(const mhla_plan* plan) {
  return guarded_or<size_t>(0, [&] { return required(plan, "plan")->plan.forward_workspace(); });
}
size_t mhla_plan_backward_workspace(const mhla_plan* plan) {
  return guarded_or<size_t>(0, [&] { return required(plan, "plan")->plan.backward_workspace(); });
}
size_t mhla_plan_kept_bytes(const mhla_plan* plan) {
  return guarded_or<size_t>(0, [&] { return required(plan, "plan")->plan.kept_bytes(); });
}

mhla_status mhla_forward(const mhla_plan* plan, const mhla_forward_args* args) {
  return guarded([&] {
    required(plan, "plan");
    required(args, "args");
    const BorrowedParallel parallel(args->run.parallel);
    forward(plan->plan, {.in = to_inputs(args->in),
                         .o = to_tensor(args->o),
                         .final_state = {args->final_state.S, args->final_state.z},
                         .kept = args->kept,
                         .run = to_execution(args->run, parallel)});
  });
}

mhla_status mhla_backward(const mhla_plan* plan, const mhla_backward_args* args) {
  return guarded([&] {
    required(plan, "plan");
    required(args, "args");
    const BorrowedParallel parallel(args->run.parallel);
    backward(plan->plan, {.in = to_inputs(args->in),
                          .o = to_tensor(args->o),
                          .d_o = to_tensor(args->d_o),
                          .d_final = {args->d_final.S, args->d_final.z},
                          .d_q = to_tensor(args->d_q),
                          .d_k = to_tensor(args->d_k),
                          .d_v = to_tensor(args->d_v),
                          .d_q_den = to_tensor(args->d_q_den),
                          .d_k_den = to_tensor(args->d_k_den),
                          .d_mixing = args->d_mixing,
                          .d_initial = {args->d_initial.S, args->d_initial.z},
                          .kept = args->kept,
                          .run = to_execution(args->run, parallel)});
  });
}

}  // extern "C"
