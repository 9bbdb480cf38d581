/* The MHLA operator for C and for other languages: the C++ interface of attention.hpp, partition.hpp, mixing.hpp and
 * state.hpp in plain structs and handles. Fields and arguments mean what they mean there.
 *
 * Functions that can fail return a status; mhla_last_error() then says which argument was wrong, what it was and what
 * it may be. Functions that return a value leave the message beside the value named below. Nothing is written to an
 * output before the arguments have been found good. All functions are re-entrant; a handle may be used by one thread at
 * a time, a plan by any number. */
#ifndef MHLA_MHLA_H
#define MHLA_MHLA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mhla_status {
  MHLA_OK = 0,
  MHLA_BAD_ARGUMENT = 1,
  MHLA_OUT_OF_MEMORY = 2,
  MHLA_FAILURE = 3 /* anything else, such as a failing thread pool of the caller */
} mhla_status;

/* Message of the last failure on the calling thread; empty when there was none. */
const char* mhla_last_error(void);
const char* mhla_version(void);   /* "major.minor.patch" */
const char* mhla_cpu_isa(void);   /* "avx512", "avx2" or "portable"; "" with a message where MHLA_CPU_ISA is none */
int mhla_cuda_device_count(void); /* 0 without a GPU, a driver or a CUDA back end */

/* Options are integers of fixed size, so that a wrong one is an error and not undefined. */
typedef int32_t mhla_dtype;
enum { MHLA_F32, MHLA_F64, MHLA_BF16, MHLA_F16 };
typedef int32_t mhla_feature_map;
enum {
  MHLA_FEATURE_IDENTITY,
  MHLA_FEATURE_RELU,
  MHLA_FEATURE_ELU_PLUS_ONE,
  MHLA_FEATURE_EXP,
  MHLA_FEATURE_SQUARED_RELU
};
typedef int32_t mhla_normalizer;
enum { MHLA_NORMALIZER_NONE, MHLA_NORMALIZER_PAPER, MHLA_NORMALIZER_AUTHORS };
typedef int32_t mhla_masking;
enum { MHLA_MASKING_NONE, MHLA_MASKING_BLOCK_CAUSAL, MHLA_MASKING_TOKEN_CAUSAL };
typedef int32_t mhla_algorithm;
enum { MHLA_ALGORITHM_AUTOMATIC, MHLA_ALGORITHM_SUMMARY, MHLA_ALGORITHM_DENSE };
typedef int32_t mhla_device;
enum { MHLA_DEVICE_CPU, MHLA_DEVICE_CUDA };
typedef int32_t mhla_float32_products;
enum { MHLA_FLOAT32_PRODUCTS_IEEE, MHLA_FLOAT32_PRODUCTS_TF32 };
typedef int32_t mhla_mixing_kind;
enum {
  MHLA_MIXING_PAPER,
  MHLA_MIXING_LINEAR,
  MHLA_MIXING_COS,
  MHLA_MIXING_EXP,
  MHLA_MIXING_GAUSSIAN,
  MHLA_MIXING_LOCAL,
  MHLA_MIXING_UNIFORM,
  MHLA_MIXING_RUNNING_MEAN,
  MHLA_MIXING_CONSTANT
};
typedef int32_t mhla_beyond;
enum { MHLA_BEYOND_ERROR, MHLA_BEYOND_CLAMP, MHLA_BEYOND_RUNNING_MEAN, MHLA_BEYOND_INTERPOLATE };

/* Threads. A null `mhla_parallel` means the library's own pool. `for_each` calls task(task_context, i) for i in 0 ..
 * count - 1, in any order, and returns when all are done; the task never fails. */
typedef struct mhla_parallel {
  int threads;
  void* context;
  void (*for_each)(void* context, int64_t count, void (*task)(void* task_context, int64_t index), void* task_context);
} mhla_parallel;
mhla_status mhla_set_num_threads(int threads);

/* Partition: filled in by one of the three constructors; a value to be copied freely. */
typedef struct mhla_partition {
  int axes;
  int64_t sizes[3];
  int64_t extents[3];
  int64_t blocks_per_axis[3];
  int64_t tokens;
  int64_t blocks;
  int64_t block_capacity;
} mhla_partition;
mhla_status mhla_partition_line(int64_t tokens, int64_t block_size, mhla_partition* partition);
mhla_status mhla_partition_grid(int axes, const int64_t* sizes, const int64_t* blocks, mhla_partition* partition);
mhla_status mhla_partition_by_extent(int axes, const int64_t* sizes, const int64_t* extents, mhla_partition* partition);
/* order[tokens]: tokens of block 0, then of block 1, ...; offsets[blocks + 1]: where each block starts. Either may be
 * null. */
mhla_status mhla_partition_block_order(const mhla_partition* partition, int64_t* order, int64_t* offsets);

/* Mixing matrices, row-major. `parameters` null: the defaults. */
typedef struct mhla_mixing_parameters {
  double sigma;
  double threshold;
  double value;
} mhla_mixing_parameters;
mhla_mixing_parameters mhla_default_mixing_parameters(void);
mhla_status mhla_mixing_init(const mhla_partition* partition, mhla_mixing_kind kind,
                             const mhla_mixing_parameters* parameters, double* mixing);
mhla_status mhla_mixing_project_f32(float* mixing, int64_t blocks, bool normalize_rows, float low, float high);
mhla_status mhla_mixing_project_f64(double* mixing, int64_t blocks, bool normalize_rows, double low, double high);
mhla_status mhla_mixing_resize(const double* mixing, const mhla_partition* from, const mhla_partition* to,
                               double* resized);
mhla_status mhla_mixing_extend_causal(const double* mixing, int64_t trained, int64_t blocks, mhla_beyond beyond,
                                      double* extended);

/* The operator: problem, plan, execution. Start from mhla_default_problem(). */
typedef struct mhla_options {
  mhla_feature_map feature_map;
  mhla_normalizer normalizer;
  mhla_masking masking;
  mhla_algorithm algorithm;
  double scale;
  double eps;
  double feature_eps;
  mhla_float32_products float32_products; /* CUDA only */
} mhla_options;

typedef struct mhla_problem {
  mhla_device device; /* where every pointer of a call points to; with CUDA, the current device */
  mhla_dtype dtype;
  int64_t batch;
  int64_t heads;
  int64_t kv_heads;
  int64_t key_dim;
  int64_t value_dim;
  mhla_partition partition;
  mhla_options options;
  int64_t mixing_blocks;
  bool mixing_per_head;
  bool mixing_per_row;
  bool separate_denominator; /* q_den and k_den are given */
  const int64_t* cu_seqlens; /* null: not packed; copied by mhla_plan_create */
  size_t cu_seqlens_count;
  int64_t initial_tokens;
} mhla_problem;
mhla_problem mhla_default_problem(void);

typedef struct mhla_tensor {
  void* data;
  int64_t batch_stride, token_stride, head_stride; /* in elements; the last axis is contiguous */
} mhla_tensor;
typedef struct mhla_const_tensor {
  const void* data;
  int64_t batch_stride, token_stride, head_stride;
} mhla_const_tensor;
/* Strides of a contiguous tensor; those of sizes that no call accepts mean nothing. */
mhla_tensor mhla_contiguous(void* data, int64_t tokens, int64_t heads, int64_t dim);
mhla_const_tensor mhla_const_contiguous(const void* data, int64_t tokens, int64_t heads, int64_t dim);

typedef struct mhla_summaries {
  void *S, *z;
} mhla_summaries;
typedef struct mhla_const_summaries {
  const void *S, *z;
} mhla_const_summaries;

typedef struct mhla_inputs {
  mhla_const_tensor q, k, v;
  mhla_const_tensor q_den, k_den;
  const void* mixing;
  mhla_const_summaries initial;
} mhla_inputs;
typedef struct mhla_execution {
  void* workspace; /* aligned to 64 bytes, on CUDA to 256 */
  size_t workspace_bytes;
  const mhla_parallel* parallel; /* CPU only */
  void* stream;                  /* cudaStream_t; CUDA only */
} mhla_execution;
typedef struct mhla_forward_args {
  mhla_inputs in;
  mhla_tensor o;
  mhla_summaries final_state;
  mhla_execution run;
  void* kept; /* mhla_plan_kept_bytes() for mhla_backward, aligned as a workspace; null: not wanted, or 0 bytes */
} mhla_forward_args;
typedef struct mhla_backward_args {
  mhla_inputs in;
  mhla_const_tensor o, d_o;
  mhla_const_summaries d_final;
  mhla_tensor d_q, d_k, d_v;
  mhla_tensor d_q_den, d_k_den;
  void* d_mixing;
  mhla_summaries d_initial;
  mhla_execution run;
  const void* kept; /* what mhla_forward left for these inputs; null: nothing */
} mhla_backward_args;

typedef struct mhla_plan mhla_plan;
mhla_status mhla_plan_create(const mhla_problem* problem, int threads, mhla_plan** plan);
void mhla_plan_destroy(mhla_plan* plan);                   /* null is ignored */
mhla_algorithm mhla_plan_algorithm(const mhla_plan* plan); /* -1: plan is null */
/* Bytes; also 0 where plan is null. */
size_t mhla_plan_forward_workspace(const mhla_plan* plan);
size_t mhla_plan_backward_workspace(const mhla_plan* plan);
size_t mhla_plan_kept_bytes(const mhla_plan* plan); /* 0: forward has nothing to leave for backward */
/* On CUDA these enqueue work on the stream and return. */
mhla_status mhla_forward(const mhla_plan* plan, const mhla_forward_args* args);
mhla_status mhla_backward(const mhla_plan* plan, const mhla_backward_args* args);

/* Streaming. Start from mhla_default_state_config(). */
typedef struct mhla_state_config {
  mhla_dtype dtype;
  int64_t batch;
  int64_t heads;
  int64_t kv_heads;
  int64_t key_dim;
  int64_t value_dim;
  int64_t block_size;
  int64_t mixing_blocks;
  bool mixing_per_head;
  mhla_options options;
  mhla_beyond beyond;
} mhla_state_config;
mhla_state_config mhla_default_state_config(void);

/* One thread at a time uses a state: a call on a state that another call is using is refused and changes nothing. */
typedef struct mhla_state mhla_state;
mhla_status mhla_state_create(const mhla_state_config* config, const void* mixing, mhla_state** state);
void mhla_state_destroy(mhla_state* state); /* null is ignored */
mhla_status mhla_state_prefill(mhla_state* state, int64_t tokens, mhla_const_tensor q, mhla_const_tensor k,
                               mhla_const_tensor v, mhla_tensor o, const mhla_parallel* parallel);
mhla_status mhla_state_step(mhla_state* state, mhla_const_tensor q, mhla_const_tensor k, mhla_const_tensor v,
                            mhla_tensor o, const mhla_parallel* parallel);
mhla_status mhla_state_fork(const mhla_state* state, mhla_state** fork);
/* With a null buffer, *size becomes the bytes needed; else *size is the room in the buffer and becomes the bytes
 * written. */
mhla_status mhla_state_serialize(const mhla_state* state, void* buffer, size_t* size);
mhla_status mhla_state_restore(const void* bytes, size_t size, mhla_state** state);
int64_t mhla_state_tokens(const mhla_state* state); /* -1: refused, see mhla_last_error() */
size_t mhla_state_bytes(const mhla_state* state);   /* 0: refused */

#ifdef __cplusplus
}
#endif

#endif
