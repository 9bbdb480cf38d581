// Checks of tensors that all operators share. Each throws an Error that names the argument, what it was and what it
// must be; those on symbolic sizes work under tracing too.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <sstream>
#include <string_view>

#include "mhla/types.hpp"

namespace mhla::dispatch {

using OptionalTensor = std::optional<at::Tensor>;

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw Error(text.str());
}

// Methods of custom classes turn unknown exceptions into Python's RuntimeError; an Error becomes a ValueError.
template <typename Body>
auto with_value_errors(Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    C10_THROW_ERROR(ValueError, error.what());
  }
}

DType dtype_of(const at::Tensor& tensor, std::string_view argument);
at::ScalarType scalar_type(DType dtype);

// Of a floating-point type that the operators take, dense, with `axes` axes, the last of them contiguous; `shape` says
// so to the reader of an error.
void check_tokens(const at::Tensor& tensor, std::string_view argument, std::int64_t axes = 4,
                  const char* shape = "[batch, tokens, heads, width]");
void check_last_axis(const at::Tensor& tensor, std::string_view argument);

// Strided: neither sparse nor nested nor in another library's layout.
void check_dense(const at::Tensor& tensor, std::string_view argument);

// The tensor with its values in memory, for what does not come through the dispatcher, which sees to this itself: a
// view that negates or a tensor that only says it is zero is written out; a tensor without values is refused.
at::Tensor resolved(const at::Tensor& tensor, std::string_view argument);

// Where the values are; the only way here from a tensor to a pointer. Refuses what resolved() would write out.
const void* data_of(const at::Tensor& tensor);
void* mutable_data_of(const at::Tensor& tensor);

// `whose` comes before the value in the message: "that of q, ".
void check_dtype(const at::Tensor& tensor, std::string_view argument, at::ScalarType expected, const char* whose = "");
void check_device(const at::Tensor& tensor, std::string_view argument, at::Device expected, const char* whose = "");
void check_shape(const at::Tensor& tensor, std::string_view argument, c10::SymIntArrayRef expected,
                 const char* whose = "");
void check_shape(const at::Tensor& tensor, std::string_view argument, at::IntArrayRef expected);

// Of a type that dtype_of() knows.
void check_floating(const at::Tensor& tensor, std::string_view argument);

// [M, M] or [H, M, M] with H = heads (0: any).
void check_matrix(const at::Tensor& mixing, std::string_view argument, std::int64_t heads = 0);

}  // namespace mhla::dispatch
