// How blocks become boxes, and descriptions of tensors for bulk copies.
#include <algorithm>

#include "cuda/support/hopper/tensor_map.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode encoder() {
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    constexpr unsigned kSince = 12000;
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSince, cudaEnableDefault, &found);
    return status == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function) : nullptr;
  }();
  return encode;
}

CUtensorMap encode(CUtensorMapDataType type, const void* data, int rank, const cuuint64_t* sizes,
                   const cuuint64_t* strides, const cuuint32_t* box) {
  CUtensorMap map;
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const auto swizzle = box[0] < kBoxColumns ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B;
  const auto describe = [&] {
    return encoder()(&map, type, static_cast<cuuint32_t>(rank), const_cast<void*>(data), sizes, strides, box, steps,
                     CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult status = describe();
  if (status == CUDA_ERROR_INVALID_CONTEXT) {  // a thread that has not used the device yet
    int device = 0;
    check(cudaGetDevice(&device), "device of this thread");
    check(cudaSetDevice(device), "device of this thread");
    status = describe();
  }
  if (status != CUDA_SUCCESS)
    throw Error("CUDA: the driver refused the description of a tensor for bulk copies (status " +
                std::to_string(static_cast<int>(status)) + ")");
  return map;
}

template <typename E>
constexpr CUtensorMapDataType kType =
    std::is_same_v<std::remove_const_t<E>, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;

}  // namespace

bool find_boxes(const Shape& shape, Boxes& boxes) {
  if (shape.packed != nullptr || shape.filled > 0 || shape.uniform.tokens == 0 || shape.sequences == 0) return false;
  int counts[3] = {1, 1, 1};
  if (shape.is_line) {
    boxes.sizes[2] = static_cast<int>(shape.uniform.tokens);
    // A single block may be longer than the sequence: what is past its last tile is left alone.
    const auto tokens = static_cast<int>((shape.uniform.tokens + kTileRows - 1) / kTileRows * kTileRows);
    boxes.extents[2] = std::min(shape.capacity, tokens);
    counts[2] = shape.uniform.blocks;
  } else {
    for (int axis = 0; axis < 3; ++axis) {
      boxes.sizes[axis] = shape.sizes[axis];
      boxes.extents[axis] = shape.extents[axis];
      counts[axis] = shape.counts[axis];
    }
  }
  // Of the boxes that divide a block, the one whose tiles waste least; the larger of two alike.
  double best = 0;
  int box[3];
  for (box[0] = 1; box[0] <= boxes.extents[0]; ++box[0])
    for (box[1] = 1; box[1] <= boxes.extents[1]; ++box[1])
      for (box[2] = 1; box[2] <= std::min(boxes.extents[2], kTileRows); ++box[2]) {
        const int rows = box[0] * box[1] * box[2];
        if (rows > kTileRows) break;
        if (boxes.extents[0] % box[0] != 0 || boxes.extents[1] % box[1] != 0 || boxes.extents[2] % box[2] != 0)
          continue;
        const int count = boxes.extents[0] * boxes.extents[1] * boxes.extents[2] / rows;
        const int joined = std::min(kTileRows / rows, count), tiles = (count + joined - 1) / joined;
        const double used = static_cast<double>(count) * rows / (tiles * kTileRows) + 1e-3 * rows;
        if (used <= best) continue;
        best = used;
        std::copy(box, box + 3, boxes.box);
        boxes.rows = rows;
        boxes.per_block = count;
        boxes.joined = joined;
        boxes.tiles = tiles;
      }
  boxes.padded_rows = (boxes.joined * boxes.rows + 15) / 16 * 16;
  constexpr int kWorthwhile = 12;  // rows of a box: below, copies cost more than they save
  if (boxes.rows < kWorthwhile) return false;
  boxes.by_columns = Divider(counts[2]);
  boxes.by_rows = Divider(counts[1]);
  boxes.by_box_columns = Divider(boxes.extents[2] / boxes.box[2]);
  boxes.by_box_rows = Divider(boxes.extents[1] / boxes.box[1]);
  boxes.by_width = Divider(boxes.box[2]);
  boxes.by_height = Divider(boxes.box[1]);
  boxes.by_box = Divider(boxes.rows);
  return true;
}

template <typename E>
CUtensorMap token_map(const TokenTensor<E>& x, int heads, int batch, const Boxes& boxes, int box_columns) {
  const auto token = static_cast<cuuint64_t>(x.token_stride) * sizeof(E);
  const auto columns = static_cast<cuuint64_t>(boxes.sizes[2]), rows = static_cast<cuuint64_t>(boxes.sizes[1]);
  const auto planes = static_cast<cuuint64_t>(boxes.sizes[0]);
  const cuuint64_t sizes[5] = {static_cast<cuuint64_t>(x.dim) * static_cast<cuuint64_t>(heads), columns, rows, planes,
                               static_cast<cuuint64_t>(batch)};
  const cuuint64_t strides[4] = {
      token, token * columns, token * columns * rows,
      batch == 1 ? token * columns * rows * planes : static_cast<cuuint64_t>(x.batch_stride) * sizeof(E)};
  const cuuint32_t box[5] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(boxes.box[2]),
                             static_cast<cuuint32_t>(boxes.box[1]), static_cast<cuuint32_t>(boxes.box[0]), 1};
  return encode(kType<E>, x.data, 5, sizes, strides, box);
}

template <typename E>
bool head_map(const TokenTensor<E>& x, int heads, int batch, const Boxes& boxes, CUtensorMap& map) {
  const auto token = static_cast<cuuint64_t>(x.token_stride) * sizeof(E);
  const int height = boxes.sizes[1], width = boxes.sizes[2], rows = boxes.extents[1], columns = boxes.extents[2];
  const bool dense = batch == 1 || x.batch_stride == static_cast<std::int64_t>(x.token_stride) * height * width;
  if (boxes.sizes[0] != 1 || height % rows != 0 || width % columns != 0 || !dense) return false;
  const auto u64 = [](int n) { return static_cast<cuuint64_t>(n); };
  const auto u32 = [](int n) { return static_cast<cuuint32_t>(n); };
  const cuuint64_t sizes[5] = {u64(x.dim) * u64(heads), u64(columns), u64(rows), u64(width / columns),
                               u64(height / rows) * u64(batch)};
  const cuuint64_t strides[4] = {token, token * u64(width), token * u64(columns), token * u64(width) * u64(rows)};
  const cuuint32_t box[5] = {kBoxColumns, u32(columns), u32(rows), u32(width / columns), u32(height / rows)};
  map = encode(kType<E>, x.data, 5, sizes, strides, box);
  return true;
}

template <typename E>
CUtensorMap matrix_map(const E* data, std::int64_t rows, int columns, int box_rows) {
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * sizeof(E)};
  const cuuint32_t box[2] = {kBoxColumns, static_cast<cuuint32_t>(box_rows)};
  return encode(kType<E>, data, 2, sizes, strides, box);
}

template <typename E>
CUtensorMap store_map(const E* data, int units, int rows, int columns, int box_rows) {
  const auto row = static_cast<cuuint64_t>(columns) * sizeof(E);
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                               static_cast<cuuint64_t>(units)};
  const cuuint64_t strides[2] = {row, row * static_cast<cuuint64_t>(rows)};
  const cuuint32_t box[3] = {kBoxColumns, static_cast<cuuint32_t>(box_rows), 1};
  return encode(kType<E>, data, 3, sizes, strides, box);
}

#define MHLA_INSTANTIATE(E)                                                                           \
  template CUtensorMap token_map<E>(const TokenTensor<E>&, int, int, const Boxes&, int);              \
  template CUtensorMap token_map<const E>(const TokenTensor<const E>&, int, int, const Boxes&, int);  \
  template bool head_map<const E>(const TokenTensor<const E>&, int, int, const Boxes&, CUtensorMap&); \
  template CUtensorMap store_map<E>(const E*, int, int, int, int);                                    \
  template CUtensorMap matrix_map<E>(const E*, std::int64_t, int, int);
MHLA_INSTANTIATE(__nv_bfloat16)
MHLA_INSTANTIATE(__half)
#undef MHLA_INSTANTIATE

}  // namespace mhla::cuda::hopper
