// Tensors that no kernel here takes (sparse, quantised, nested, MKL-DNN) are refused by name, whatever the operator.
#include <torch/library.h>

#include <string>
#include <vector>

#include "torch/checks.hpp"

namespace mhla::dispatch {
namespace {

void refuse_other(const at::Tensor& tensor, const std::string& argument) {
  check_dense(tensor, argument);
  if (tensor.is_quantized()) refuse(argument, " has dtype ", tensor.scalar_type(), "; it must not be quantised");
}

void refuse_call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  const auto values = torch::jit::last(*stack, arguments.size());
  for (std::size_t n = 0; n < arguments.size(); ++n) {
    if (values[n].isTensor()) refuse_other(values[n].toTensor(), arguments[n].name());
    if (values[n].isTensorList())
      for (const at::Tensor& tensor : values[n].toTensorVector()) refuse_other(tensor, arguments[n].name());
  }
  refuse("a tensor is of a kind that mhla does not take; all must be dense");
}

void refuse_all(torch::Library& library) {
  for (const char* name :
       {"attention", "attention_keeping", "attention_backward", "decode_open", "decode_step", "gated_norm",
        "gated_norm_backward", "modulate", "modulate_backward", "rotary_features", "rotary_features_backward"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_call>());
}

TORCH_LIBRARY_IMPL(mhla, SparseMeta, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(mhla, SparseCsrMeta, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(mhla, NestedTensorMeta, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(mhla, SparseCPU, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(mhla, SparseCUDA, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(mhla, SparseCsrCPU, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(mhla, SparseCsrCUDA, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(mhla, QuantizedCPU, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(mhla, QuantizedCUDA, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(mhla, MkldnnCPU, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(mhla, NestedTensorCPU, library) { refuse_all(library); }
TORCH_LIBRARY_IMPL(mhla, NestedTensorCUDA, library) { refuse_all(library); }

}  // namespace
}  // namespace mhla::dispatch
