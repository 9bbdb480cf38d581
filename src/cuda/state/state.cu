// One thread block per summary; nothing but copies.
#include <algorithm>

#include "cuda/state/state.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda {
namespace {

constexpr int kThreads = 256;

// One thread block per (sequence, kv head, initial entry).
template <typename E>
__global__ void load_initial_kernel(const __grid_constant__ StateArgs<E> args) {
  using T = Accumulator<E>;
  const Shape& shape = args.shape;
  const auto from_row = static_cast<std::int64_t>(blockIdx.x);
  const auto head = static_cast<int>(from_row / shape.initial);
  const SequenceRow s = shape.sequence(head / shape.kv_heads);
  const std::int64_t row = shape.entry_row(s, head % shape.kv_heads, static_cast<int>(from_row % shape.initial));
  for (int x = static_cast<int>(threadIdx.x); x < shape.matrix_size(); x += kThreads) {
    const int m = x / shape.value_pad, n = x % shape.value_pad;
    T value = 0;
    if (m < shape.key_dim && n < shape.value_dim)
      value = args.initial_S[(from_row * shape.key_dim + m) * shape.value_dim + n] * static_cast<T>(args.store_factor);
    args.store[row * shape.matrix_size() + x] = to_element<E>(value);
  }
  if (args.sums == nullptr) return;
  for (int m = static_cast<int>(threadIdx.x); m < shape.key_pad; m += kThreads)
    args.sums[row * shape.key_pad + m] = m < shape.key_dim ? args.initial_z[from_row * shape.key_dim + m] : T(0);
}

// One thread block per (sequence, kv head, block of the final state).
template <typename E>
__global__ void fill_final_kernel(const __grid_constant__ StateArgs<E> args) {
  using T = Accumulator<E>;
  const Shape& shape = args.shape;
  const auto row = static_cast<std::int64_t>(blockIdx.x);
  const std::int64_t head = row / shape.final_blocks;
  const auto block = static_cast<int>(row % shape.final_blocks);
  const SequenceRow s = shape.sequence(static_cast<int>(head / shape.kv_heads));
  if (block >= shape.initial_full && block < shape.initial_full + s.blocks) return;
  const std::int64_t from = head * shape.initial + block;
  const int size = shape.key_dim * shape.value_dim;
  for (int x = static_cast<int>(threadIdx.x); x < size; x += kThreads)
    args.final_S[row * size + x] = block < shape.initial ? args.initial_S[from * size + x] : T(0);
  if (args.final_z == nullptr) return;
  for (int m = static_cast<int>(threadIdx.x); m < shape.key_dim; m += kThreads)
    args.final_z[row * shape.key_dim + m] = block < shape.initial ? args.initial_z[from * shape.key_dim + m] : T(0);
}

struct TablePart {
  static constexpr int kRows = 64;
  SequenceRow rows[kRows];
};

__global__ void upload_kernel(const __grid_constant__ TablePart part, SequenceRow* to, int count) {
  if (static_cast<int>(threadIdx.x) < count) to[threadIdx.x] = part.rows[threadIdx.x];
}

}  // namespace

template <typename E>
void load_initial(const StateArgs<E>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  const std::int64_t heads = std::int64_t{shape.sequences} * shape.kv_heads;
  launch("initial state", load_initial_kernel<E>, grid_of("initial state", heads * shape.initial), kThreads, 0, stream,
         args);
}

template <typename E>
void fill_final(const StateArgs<E>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  const std::int64_t heads = std::int64_t{shape.sequences} * shape.kv_heads;
  launch("final state", fill_final_kernel<E>, grid_of("final state", heads * shape.final_blocks), kThreads, 0, stream,
         args);
}

void upload(const std::vector<SequenceRow>& rows, SequenceRow* to, cudaStream_t stream) {
  for (std::size_t first = 0; first < rows.size(); first += TablePart::kRows) {
    TablePart part;
    const std::size_t count = std::min<std::size_t>(TablePart::kRows, rows.size() - first);
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(first), count, part.rows);
    launch("table of sequences", upload_kernel, dim3(1), TablePart::kRows, 0, stream, part, to + first,
           static_cast<int>(count));
  }
}

#define MHLA_INSTANTIATE(E)                                         \
  template void load_initial<E>(const StateArgs<E>&, cudaStream_t); \
  template void fill_final<E>(const StateArgs<E>&, cudaStream_t);
MHLA_INSTANTIATE(__nv_bfloat16)
MHLA_INSTANTIATE(__half)
MHLA_INSTANTIATE(float)
MHLA_INSTANTIATE(double)
#undef MHLA_INSTANTIATE

}  // namespace mhla::cuda
