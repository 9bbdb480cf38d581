// Checks and views of fused_tensors.hpp.
#include "torch/fused_tensors.hpp"

#include "torch/tensors.hpp"

namespace mhla::dispatch {

void check_token_rows(const at::Tensor& x, std::string_view argument, std::int64_t axes, const char* shape) {
  check_tokens(x, argument, axes, shape);
  if (x.sym_size(-1) < 1) refuse(argument, " has width 0; it must be at least 1, ", shape);
}

void check_parameter(const at::Tensor& tensor, std::string_view argument, const at::Tensor& x) {
  check_dense(tensor, argument);
  dtype_of(tensor, argument);
  if (tensor.scalar_type() == at::kDouble && x.scalar_type() != at::kDouble) {
    refuse(argument, " has dtype Double; beside x of ", x.scalar_type(), " it must be float32, bfloat16 or float16");
  }
  check_device(tensor, argument, x.device(), "that of x, ");
}

void check_like(const at::Tensor& tensor, std::string_view argument, const at::Tensor& x) {
  check_gradient(tensor, argument, x);
  check_last_axis(tensor, argument);
}

void check_gradient(const OptionalTensor& gradient, std::string_view argument, const at::Tensor& x) {
  if (!gradient) return;
  check_parameter(*gradient, argument, x);
  check_dtype(*gradient, argument, x.scalar_type(), "that of x, ");
  check_shape(*gradient, argument, x.sym_sizes(), "that of x, ");
}

void check_vector(const OptionalTensor& vector, std::string_view argument, const c10::SymInt& width,
                  const at::Tensor& x) {
  if (!vector) return;
  check_parameter(*vector, argument, x);
  if (vector->dim() != 1 || vector->sym_size(0) != width) {
    refuse(argument, " has shape ", vector->sym_sizes(), "; it must be [", width, "]");
  }
}

at::Tensor readable(const OptionalTensor& tensor) {
  if (!tensor) return {};
  return tensor->stride(-1) == 1 || tensor->size(-1) == 1 ? *tensor : tensor->contiguous();
}

fused::ConstVector vector_view(const at::Tensor& vector) {
  if (!vector.defined() || vector.numel() == 0) return {};
  return {data_of(vector), dtype_of(vector, "weight")};
}

fused::Vector mutable_vector_view(const at::Tensor& vector) {
  if (!vector.defined() || vector.numel() == 0) return {};
  return {mutable_data_of(vector), dtype_of(vector, "weight")};
}

namespace {

template <typename Pointer>
BasicTensor<Pointer> view_of(const at::Tensor& tensor, Pointer data) {
  return {data, tensor.stride(0), tensor.stride(1), tensor.dim() == 4 ? tensor.stride(2) : 0};
}

}  // namespace

ConstTensor token_view(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return {};
  return view_of<const void*>(tensor, data_of(tensor));
}

Tensor mutable_token_view(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return {};
  return view_of<void*>(tensor, mutable_data_of(tensor));
}

at::Tensor empty_like_contiguous(const at::Tensor& tensor) {
  return at::empty_symint(tensor.sym_sizes(), tensor.options());
}

at::Tensor nothing(const at::Tensor& x) { return at::empty({0}, x.options()); }

}  // namespace mhla::dispatch
