// The fused operators: names, rotary tables, workspace sizes, and the way to the device.
#include "mhla/fused.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "core/fused_rows.hpp"
#include "core/fused_validate.hpp"
#include "core/names.hpp"
#include "cpu/fused/fused.hpp"
#include "cuda/fused/fused.hpp"

namespace mhla::fused {
namespace {

constexpr std::array<NameEntry<NormScope>, 3> kNormScopes{
    {{NormScope::none, "none"}, {NormScope::head, "head"}, {NormScope::channels, "channels"}}};

constexpr std::array<NameEntry<RotaryLayout>, 2> kRotaryLayouts{
    {{RotaryLayout::half, "half"}, {RotaryLayout::adjacent, "adjacent"}}};

template <typename T>
void fill_table(const Rotary& rotary, double theta, std::int64_t offset, T* cos, T* sin) {
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(rotary.axes); ++axis)
    for (std::int64_t coordinate = 0; coordinate < rotary.sizes[axis]; ++coordinate)
      for (std::int64_t j = 0; j < rotary.pairs[axis]; ++j) {
        const double exponent = -static_cast<double>(j) / static_cast<double>(rotary.pairs[axis]);
        const double angle = static_cast<double>(offset + coordinate) * std::pow(theta, exponent);
        *cos++ = static_cast<T>(std::cos(angle));
        *sin++ = static_cast<T>(std::sin(angle));
      }
}

template <typename Problem>
std::size_t slot_bytes(const Problem& p) {
  validate(p);
  return static_cast<std::size_t>(slots_of(p).count() * rows_of(p).width()) * element_size(accumulation_type(p.dtype));
}

// Few elements are done before another thread is awake.
template <typename Problem>
const Parallel& workers(const Problem& p, const Execution& run) {
  constexpr std::int64_t kFew = 1 << 15;
  const Rows rows = rows_of(p);
  if (rows.batch * rows.per_batch() < kFew / std::max<std::int64_t>(1, rows.width())) return serial();
  return run.parallel != nullptr ? *run.parallel : default_parallel();
}

template <typename Problem, typename Args>
void run_forward(const Problem& p, const Args& args) {
  validate(p, args);
  if (rows_of(p).empty()) return;
  if (p.device == Device::cuda) return cuda::forward(p, args);
  cpu::forward(p, args, workers(p, args.run));
}

// Also without tokens: gradients of weights are zero then.
template <typename Problem, typename Args>
void run_backward(const Problem& p, const Args& args) {
  validate(p, args);
  if (rows_of(p).width() == 0) return;
  if (p.device == Device::cuda) return cuda::backward(p, args);
  cpu::backward(p, args, workers(p, args.run));
}

}  // namespace

std::string_view name(NormScope value) { return find_name<NormScope>(kNormScopes, value); }
std::string_view name(RotaryLayout value) { return find_name<RotaryLayout>(kRotaryLayouts, value); }
NormScope parse_norm_scope(std::string_view text) { return parse_name<NormScope>(kNormScopes, "norm", text); }
RotaryLayout parse_rotary_layout(std::string_view text) {
  return parse_name<RotaryLayout>(kRotaryLayouts, "layout", text);
}

void rotary_table(const Rotary& rotary, double theta, std::int64_t offset, DType dtype, void* cos, void* sin) {
  validate_table(rotary, theta, offset, dtype, cos, sin);
  if (dtype == DType::f64)
    fill_table(rotary, theta, offset, static_cast<double*>(cos), static_cast<double*>(sin));
  else
    fill_table(rotary, theta, offset, static_cast<float*>(cos), static_cast<float*>(sin));
}

std::size_t backward_workspace(const RotaryFeatures& p) { return p.norm == NormScope::none ? 0 : slot_bytes(p); }
std::size_t backward_workspace(const GatedNorm& p) { return slot_bytes(p); }
std::size_t backward_workspace(const Modulate& p) { return 2 * slot_bytes(p); }

void forward(const RotaryFeatures& p, const RotaryFeatures::Forward& args) { run_forward(p, args); }
void forward(const GatedNorm& p, const GatedNorm::Forward& args) { run_forward(p, args); }
void forward(const Modulate& p, const Modulate::Forward& args) { run_forward(p, args); }
void backward(const RotaryFeatures& p, const RotaryFeatures::Backward& args) { run_backward(p, args); }
void backward(const GatedNorm& p, const GatedNorm::Backward& args) { run_backward(p, args); }
void backward(const Modulate& p, const Modulate::Backward& args) { run_backward(p, args); }

}  // namespace mhla::fused
