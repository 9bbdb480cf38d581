// The MHLA operator: forward and backward, on the CPU or on CUDA.
//
//   S_b = sum_{t in block b} phi(k_t) v_t^T     z_b = sum_{t in block b} phi(k_t)
//   o_t = scale phi(q_t)^T sum_b m[i, b] S_b / (denominator + eps)    for a query t of block i
//
// A call is a Problem (sizes and options), a Plan made from it (validated, with algorithm and workspace size) and the
// pointers of one execution. Nothing allocates memory for tensors behind the caller's back, nothing is global, every
// function is re-entrant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "mhla/parallel.hpp"
#include "mhla/partition.hpp"
#include "mhla/types.hpp"

namespace mhla {

struct Options {
  FeatureMap feature_map = FeatureMap::relu;
  Normalizer normalizer = Normalizer::paper;
  Masking masking = Masking::none;
  Algorithm algorithm = Algorithm::automatic;
  double scale = 1.0;                                        // multiplies phi(q), in numerator and denominator
  double eps = 1e-6;                                         // added to the denominator
  double feature_eps = 0.0;                                  // added to phi(q) and phi(k)
  Float32Products float32_products = Float32Products::ieee;  // CUDA only
};

struct Problem {
  Device device = Device::cpu;  // where every pointer of a call points to; with CUDA, the current device
  DType dtype = DType::f32;
  std::int64_t batch = 1;     // B
  std::int64_t heads = 1;     // H, of q and o
  std::int64_t kv_heads = 1;  // heads of k and v; divides `heads`, each serves heads / kv_heads consecutive query heads
  std::int64_t key_dim = 0;   // Dk
  std::int64_t value_dim = 0;                   // Dv
  Partition partition = Partition::line(0, 1);  // of the N tokens of one batch row
  Options options;

  // Size of the given mixing matrix: [M, M], or [H, M, M] with `mixing_per_head`, or [B, H, M, M] with `mixing_per_row`
  // as well. Must equal the number of blocks; causal and packed calls also accept a larger one, whose leading corner
  // applies.
  std::int64_t mixing_blocks = 0;
  bool mixing_per_head = false;
  bool mixing_per_row = false;

  // Inputs q_den and k_den are given: other q and k for the denominator, as rotary models need.
  bool separate_denominator = false;

  // Packed sequences: batch is 1, the N tokens are a concatenation and sequence s is [cu_seqlens[s], cu_seqlens[s +
  // 1]). Each starts a new block of the partition, which must be a line.
  std::vector<std::int64_t> cu_seqlens;

  // Causal calls only: tokens already seen, given as the summaries of their blocks (the last may be partly filled when
  // masking is token_causal). The partition counts the tokens of this call alone.
  std::int64_t initial_tokens = 0;

  // Rows of the state tensors: sequences when packed, else the batch.
  std::int64_t sequences() const {
    return cu_seqlens.empty() ? batch : static_cast<std::int64_t>(cu_seqlens.size()) - 1;
  }
  std::int64_t mixing_matrices() const { return mixing_per_row ? batch * heads : mixing_per_head ? heads : 1; }
  std::int64_t matrix_of(std::int64_t row, std::int64_t head) const {  // which of them
    return mixing_per_row ? row * heads + head : mixing_per_head ? head : 0;
  }
  std::int64_t initial_blocks() const;  // blocks of the initial state
  std::int64_t final_blocks() const;  // blocks of the final state: those of the longest sequence, initial ones included
};

// A [batch, tokens, heads, dim] tensor; strides in elements, the last axis is contiguous.
template <typename Pointer>
struct BasicTensor {
  Pointer data = nullptr;
  std::int64_t batch_stride = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};
using Tensor = BasicTensor<void*>;
using ConstTensor = BasicTensor<const void*>;

// Contiguous [batch, tokens, heads, dim]. Sizes that no call accepts give strides that mean nothing.
template <typename Pointer>
BasicTensor<Pointer> contiguous(Pointer data, std::int64_t tokens, std::int64_t heads, std::int64_t dim) {
  const auto times = [](std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  };
  return {data, times(tokens, times(heads, dim)), times(heads, dim), dim};
}

// Summaries of blocks, contiguous, in the accumulation type: S [sequences, kv_heads, blocks, Dk, Dv] and, with a
// normaliser, z [sequences, kv_heads, blocks, Dk] (else null). Blocks a sequence does not reach are zero.
template <typename Pointer>
struct BasicSummaries {
  Pointer S = nullptr;
  Pointer z = nullptr;
};
using Summaries = BasicSummaries<void*>;
using ConstSummaries = BasicSummaries<const void*>;

struct Inputs {
  ConstTensor q, k, v;
  ConstTensor q_den, k_den;      // with Problem::separate_denominator, else null
  const void* mixing = nullptr;  // accumulation type, contiguous
  ConstSummaries initial;        // null: starts from nothing
};

struct Execution {
  void* workspace =
      nullptr;  // 64-byte aligned; on CUDA 256-byte aligned, in use until the stream has got past the call
  std::size_t workspace_bytes = 0;
  const Parallel* parallel = nullptr;  // null: default_parallel(); CPU only
  void* stream = nullptr;              // cudaStream_t; CUDA only
};

struct ForwardArgs {
  Inputs in;
  Tensor o;
  Summaries final_state;  // null: not wanted
  void* kept = nullptr;   // Plan::kept_bytes() for backward(), aligned as a workspace; null: not wanted, or 0 bytes
  Execution run;
};

struct BackwardArgs {
  Inputs in;
  ConstTensor o;           // the forward output; needed with a normaliser
  ConstTensor d_o;         // gradient of o
  ConstSummaries d_final;  // gradient of the final state; null: zero
  Tensor d_q, d_k, d_v;
  Tensor d_q_den, d_k_den;     // where q_den and k_den are given
  void* d_mixing = nullptr;    // shape of mixing; null: not wanted
  Summaries d_initial;         // null: not wanted
  const void* kept = nullptr;  // what forward() left for these inputs; null: nothing
  Execution run;
};

class Plan {
 public:
  const Problem& problem() const { return problem_; }
  Algorithm algorithm() const { return algorithm_; }
  int threads() const { return threads_; }
  std::size_t forward_workspace() const { return forward_workspace_; }    // bytes
  std::size_t backward_workspace() const { return backward_workspace_; }  // bytes
  std::size_t kept_bytes() const { return kept_bytes_; }  // what forward() can leave for backward(); 0: nothing
  double forward_flops() const;  // arithmetic of the mathematics: no padding, nothing recomputed
  double backward_flops() const;
  std::size_t token_bytes() const;  // q, k, v, o moved once

 private:
  friend Plan plan(const Problem& problem, int threads);
  Problem problem_;
  Algorithm algorithm_ = Algorithm::summary;
  int threads_ = 1;
  std::size_t forward_workspace_ = 0;
  std::size_t backward_workspace_ = 0;
  std::size_t kept_bytes_ = 0;
};

// Validates the problem and decides how to run it, on a CPU with up to `threads` threads (0: those of
// default_parallel()).
Plan plan(const Problem& problem, int threads = 0);

// On CUDA these enqueue work on the stream and return; nothing synchronises, and a stream may be captured into a graph.
void forward(const Plan& plan, const ForwardArgs& args);
void backward(const Plan& plan, const BackwardArgs& args);

// The same by the definition: O(N^2), one thread, double arithmetic, no workspace. Any element type. Always on the CPU:
// the problem's device and the execution are ignored.
namespace reference {
void forward(const Problem& problem, const ForwardArgs& args);
void backward(const Problem& problem, const BackwardArgs& args);
}  // namespace reference

// Instruction set the fast kernels run on: "avx512", "avx2" or "portable". MHLA_CPU_ISA forces a lesser one.
std::string_view cpu_isa();

// Devices of this machine that this build can run on: one CPU; no CUDA device without a driver or a CUDA back end.
int device_count(Device device);

// Name of the device; of a GPU also memory, multiprocessors and compute capability. 0 <= index < device_count(device).
std::string device_description(Device device, int index);

}  // namespace mhla
