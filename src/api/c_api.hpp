// Shared by the files of the C interface: exceptions to status codes, C values to C++ values.
#pragma once

#include <cstdio>
#include <new>
#include <string>

#include "mhla/attention.hpp"
#include "mhla/mhla.h"
#include "mhla/state.hpp"

namespace mhla::c_api {

inline constexpr std::size_t kMessageBytes = 1024;
char* last_error();  // kMessageBytes of the calling thread

// Runs `call` and turns what it throws into a status.
template <typename Call>
mhla_status guarded(Call&& call) {
  const auto fail = [](mhla_status status, const char* message) {
    std::snprintf(last_error(), kMessageBytes, "%s", message);
    return status;
  };
  try {
    call();
    return MHLA_OK;
  } catch (const Error& error) {
    return fail(MHLA_BAD_ARGUMENT, error.what());
  } catch (const std::bad_alloc&) {
    return fail(MHLA_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return fail(MHLA_FAILURE, error.what());
  } catch (...) {
    return fail(MHLA_FAILURE, "unknown failure");
  }
}

// The same for a function that returns a value: `otherwise` beside the message.
template <typename Value, typename Call>
Value guarded_or(Value otherwise, Call&& call) {
  Value value = otherwise;
  return guarded([&] { value = call(); }) == MHLA_OK ? value : otherwise;
}

template <typename Pointer>
Pointer* required(Pointer* pointer, const char* argument) {
  if (pointer == nullptr) throw Error(std::string(argument) + " is null");
  return pointer;
}

// The C enumerations list the same values in the same order; name() refuses what is none of them.
template <typename Enum, typename CEnum>
Enum to_enum(CEnum value, const char* argument) {
  const auto result = static_cast<Enum>(static_cast<int>(value));
  try {
    static_cast<void>(name(result));
  } catch (const Error&) {
    throw Error(std::string(argument) + " is " + std::to_string(static_cast<int>(value)) +
                "; it must be a value of its enumeration");
  }
  return result;
}

inline Partition to_partition(const mhla_partition& p) {
  if (p.axes < 1 || p.axes > Partition::kMaxAxes)
    throw Error("partition.axes is " + std::to_string(p.axes) + "; it may be 1, 2 or 3");
  const auto axes = static_cast<std::size_t>(p.axes);
  return Partition::by_extent(std::span(p.sizes, axes), std::span(p.extents, axes));
}

inline Options to_options(const mhla_options& o) {
  return {.feature_map = to_enum<FeatureMap>(o.feature_map, "options.feature_map"),
          .normalizer = to_enum<Normalizer>(o.normalizer, "options.normalizer"),
          .masking = to_enum<Masking>(o.masking, "options.masking"),
          .algorithm = to_enum<Algorithm>(o.algorithm, "options.algorithm"),
          .scale = o.scale,
          .eps = o.eps,
          .feature_eps = o.feature_eps,
          .float32_products = to_enum<Float32Products>(o.float32_products, "options.float32_products")};
}

inline mhla_options from_options(const Options& o) {
  return {static_cast<mhla_feature_map>(o.feature_map),
          static_cast<mhla_normalizer>(o.normalizer),
          static_cast<mhla_masking>(o.masking),
          static_cast<mhla_algorithm>(o.algorithm),
          o.scale,
          o.eps,
          o.feature_eps,
          static_cast<mhla_float32_products>(o.float32_products)};
}

inline Tensor to_tensor(const mhla_tensor& x) { return {x.data, x.batch_stride, x.token_stride, x.head_stride}; }
inline ConstTensor to_tensor(const mhla_const_tensor& x) {
  return {x.data, x.batch_stride, x.token_stride, x.head_stride};
}

// A caller's thread pool as ours; lives as long as the call it serves. Failures of a task travel around the caller's C
// code, which cannot carry them.
class BorrowedParallel {
 public:
  explicit BorrowedParallel(const mhla_parallel* parallel);
  const Parallel* get() const { return parallel_.for_each ? &parallel_ : nullptr; }

 private:
  Parallel parallel_;
};

}  // namespace mhla::c_api
