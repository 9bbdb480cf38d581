// Checks of checks.hpp.
#include "torch/checks.hpp"

namespace mhla::dispatch {

DType dtype_of(const at::Tensor& tensor, std::string_view argument) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return DType::f32;
    case at::kDouble:
      return DType::f64;
    case at::kBFloat16:
      return DType::bf16;
    case at::kHalf:
      return DType::f16;
    default:
      refuse(argument, " has dtype ", tensor.scalar_type(), "; it must be float32, float64, bfloat16 or float16");
  }
}

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return at::kFloat;
    case DType::f64:
      return at::kDouble;
    case DType::bf16:
      return at::kBFloat16;
    case DType::f16:
      return at::kHalf;
  }
  refuse("dtype is not one of float32, float64, bfloat16, float16");
}

void check_last_axis(const at::Tensor& tensor, std::string_view argument) {
  if (tensor.sym_size(-1) > 1 && tensor.sym_numel() > 0 && tensor.sym_stride(-1) != 1)
    refuse(argument, " has stride ", tensor.sym_stride(-1), "; the last axis must be contiguous, stride 1");
}

void check_tokens(const at::Tensor& tensor, std::string_view argument, std::int64_t axes, const char* shape) {
  check_dense(tensor, argument);
  if (tensor.dim() != axes) refuse(argument, " has ", tensor.dim(), " axes; it must be ", axes, ", ", shape);
  dtype_of(tensor, argument);
  check_last_axis(tensor, argument);
}

void check_dense(const at::Tensor& tensor, std::string_view argument) {
  if (!tensor.defined()) refuse(argument, " is missing; it must be a tensor");
  if (tensor.layout() != at::kStrided) refuse(argument, " has layout ", tensor.layout(), "; it must be a dense tensor");
  if (tensor.is_nested()) refuse(argument, " is a nested tensor; it must be a dense tensor");
}

at::Tensor resolved(const at::Tensor& tensor, std::string_view argument) {
  check_dense(tensor, argument);
  if (tensor._is_zerotensor()) return at::zeros(tensor.sizes(), tensor.options());
  if (tensor.is_meta() || !tensor.has_storage() || tensor.key_set().has(c10::DispatchKey::Python))
    refuse(argument, " is a tensor on ", tensor.device(),
           " without values (meta, fake or wrapped); it must be a plain tensor");
  return tensor.is_neg() || tensor.is_conj() ? tensor.resolve_neg().resolve_conj() : tensor;
}

namespace {

void check_resolved(const at::Tensor& tensor) {
  if (tensor.is_neg() || tensor.is_conj() || tensor._is_zerotensor())
    refuse("a tensor of shape ", tensor.sizes(), " is a lazy view; it must be written out: tensor.resolve_neg()");
}

}  // namespace

const void* data_of(const at::Tensor& tensor) {
  check_resolved(tensor);
  return tensor.const_data_ptr();
}

void* mutable_data_of(const at::Tensor& tensor) {
  check_resolved(tensor);
  return tensor.mutable_data_ptr();
}

void check_dtype(const at::Tensor& tensor, std::string_view argument, at::ScalarType expected, const char* whose) {
  if (tensor.scalar_type() != expected)
    refuse(argument, " has dtype ", tensor.scalar_type(), "; it must be ", whose, expected);
}

void check_device(const at::Tensor& tensor, std::string_view argument, at::Device expected, const char* whose) {
  if (tensor.device() != expected) refuse(argument, " has device ", tensor.device(), "; it must be ", whose, expected);
}

void check_shape(const at::Tensor& tensor, std::string_view argument, c10::SymIntArrayRef expected, const char* whose) {
  if (tensor.sym_sizes() != expected)
    refuse(argument, " has shape ", tensor.sym_sizes(), "; it must be ", whose, expected);
}

void check_shape(const at::Tensor& tensor, std::string_view argument, at::IntArrayRef expected) {
  if (tensor.sizes() != expected) refuse(argument, " has shape ", tensor.sizes(), "; it must be ", expected);
}

void check_floating(const at::Tensor& tensor, std::string_view argument) {
  static_cast<void>(dtype_of(tensor, argument));
}

void check_matrix(const at::Tensor& mixing, std::string_view argument, std::int64_t heads) {
  check_dense(mixing, argument);
  if ((mixing.dim() != 2 && mixing.dim() != 3) || mixing.size(-1) != mixing.size(-2))
    refuse(argument, " has shape ", mixing.sizes(), "; it must be [M, M] or [H, M, M]");
  if (heads > 0 && mixing.dim() == 3 && mixing.size(0) != heads)
    refuse(argument, " has heads ", mixing.size(0), "; it must be ", heads);
  if (mixing.dim() == 3 && mixing.size(0) == 0) refuse(argument, " has heads 0; it must be at least 1");
}

}  // namespace mhla::dispatch
