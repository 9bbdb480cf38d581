// Counting through torch's observer of operator calls.
#include "train/flop_count.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/torch.h>

#include <array>
#include <atomic>
#include <string_view>

namespace mhla::train {
namespace {

std::atomic<double> counted_flops{0.0};

// Under autocast an operator first meets the cast, then is called again with the cast's results: only that call counts.
bool casts_first(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  const auto type = tensor.device().type();
  return at::autocast::is_autocast_enabled(type) &&
         !c10::impl::tls_is_dispatch_key_excluded(at::autocast::get_autocast_dispatch_key_from_device_type(type));
}

double product(const at::Tensor& a, const at::Tensor& b) {  // [..., n, k] [..., k, m]
  return 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
}

double convolution(const at::Tensor& weight, const at::Tensor& output) {
  const std::int64_t per_output = weight.numel() / weight.size(0);
  return 2.0 * static_cast<double>(output.numel()) * static_cast<double>(per_output);
}

double softmax_attention(const at::Tensor& q, const at::Tensor& k) {  // [B, H, N, D]
  return 4.0 * static_cast<double>(q.numel()) * static_cast<double>(k.size(-2));
}

// Summaries, their mixing and the readout of MHLA; q [B, N, H, Dk], v [B, N, H, Dv], mixing [..., M, M].
double linear_attention(const at::Tensor& q, const at::Tensor& v, const at::Tensor& mixing) {
  const auto tokens = static_cast<double>(q.size(1)), blocks = static_cast<double>(mixing.size(-1));
  return static_cast<double>(q.numel()) / tokens * static_cast<double>(v.size(-1)) *
         (4.0 * tokens + 2.0 * blocks * blocks);
}

double flops_of(std::string_view name, c10::ArrayRef<const c10::IValue> in) {
  const auto tensor = [&](std::size_t i) { return in[i].toTensor(); };
  if (name == "aten::mm" || name == "aten::bmm") return product(tensor(0), tensor(1));
  if (name == "aten::addmm" || name == "aten::baddbmm") return product(tensor(1), tensor(2));
  // grad_output, input, weight, ...: one product each for the gradients of input and weight
  if (name == "aten::convolution_backward") return 2.0 * convolution(tensor(2), tensor(0));
  if (name.starts_with("aten::_scaled_dot_product_") && name.find("math") == std::string_view::npos)
    return name.ends_with("backward") ? 2.5 * softmax_attention(tensor(1), tensor(2))
                                      : softmax_attention(tensor(0), tensor(1));
  if (name == "mhla::attention") return linear_attention(tensor(0), tensor(2), tensor(3));
  if (name == "mhla::attention_backward") return 2.0 * linear_attention(tensor(0), tensor(2), tensor(3));
  return 0.0;
}

// Inputs are seen before a call, outputs after it; a convolution needs both.
struct ConvolutionWeight : at::ObserverContext {
  explicit ConvolutionWeight(at::Tensor weight) : weight(std::move(weight)) {}
  at::Tensor weight;
};

std::unique_ptr<at::ObserverContext> on_call(const at::RecordFunction& call) {
  const auto inputs = call.inputs();
  if (inputs.empty() || !inputs[0].isTensor() || casts_first(inputs[0].toTensor())) return nullptr;
  if (std::string_view(call.name()) == "aten::convolution")
    return std::make_unique<ConvolutionWeight>(inputs[1].toTensor());
  counted_flops += flops_of(call.name(), inputs);
  return nullptr;
}

void on_return(const at::RecordFunction& call, at::ObserverContext* context) {
  if (const auto* convolved = dynamic_cast<ConvolutionWeight*>(context);
      convolved != nullptr && !call.outputs().empty())
    counted_flops += convolution(convolved->weight, call.outputs()[0].toTensor());
}

}  // namespace

FlopCounter::FlopCounter() {
  counted_flops = 0.0;
  callback_ = at::addGlobalCallback(at::RecordFunctionCallback(on_call, on_return)
                                        .needsInputs(true)
                                        .needsOutputs(true)
                                        .scopes({at::RecordScope::FUNCTION}));
}

FlopCounter::~FlopCounter() { at::removeCallback(callback_); }

double FlopCounter::flops() const { return counted_flops; }

std::optional<double> peak_flops(const std::string& device_name, bool bf16) {
  struct Peak {
    std::string_view name;
    double bf16, fp32;
  };
  static constexpr std::array kPeaks = {Peak{"H200", 989.4e12, 66.9e12}, Peak{"H100", 989.4e12, 66.9e12},
                                        Peak{"A100", 312e12, 19.5e12}};
  for (const Peak& peak : kPeaks)
    if (device_name.find(peak.name) != std::string::npos) return bf16 ? peak.bf16 : peak.fp32;
  return std::nullopt;
}

}  // namespace mhla::train
