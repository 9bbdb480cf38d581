// Tensors that no kernel here takes (sparse, quantised, nested, MKL-DNN) are refused by name, whatever the operator.
#include <torch/library.h>

#include <array>
#include <string>
#include <vector>

#include "torch/checks.hpp"

namespace mhla::dispatch {
namespace {

using c10::DispatchKey;

void refuse_other(const at::Tensor& tensor, const std::string& argument) {
  if (!tensor.defined()) return;
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

// One for each kind of tensor, for as long as the library is loaded.
std::vector<torch::Library> refusals() {
  constexpr std::array kKinds{DispatchKey::SparseCPU,     DispatchKey::SparseCUDA,      DispatchKey::SparseCsrCPU,
                              DispatchKey::SparseCsrCUDA, DispatchKey::QuantizedCPU,    DispatchKey::QuantizedCUDA,
                              DispatchKey::MkldnnCPU,     DispatchKey::NestedTensorCPU, DispatchKey::NestedTensorCUDA};
  std::vector<torch::Library> libraries;
  for (const DispatchKey kind : kKinds) {
    torch::Library& library = libraries.emplace_back(torch::Library::IMPL, "mhla", kind, __FILE__, __LINE__);
    for (const char* name :
         {"attention", "attention_keeping", "attention_backward", "decode_open", "decode_step", "gated_norm",
          "gated_norm_backward", "modulate", "modulate_backward", "rotary_features", "rotary_features_backward"})
      library.impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_call>());
  }
  return libraries;
}

const std::vector<torch::Library> kRefusals = refusals();

}  // namespace
}  // namespace mhla::dispatch
