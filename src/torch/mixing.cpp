// Partitions and mixing matrices for tensors: torch.ops.mhla.mixing_init, resize_mixing, project_mixing_, the index
// maps of a partition, and the version.
#include "mhla/mixing.hpp"

#include <torch/library.h>

#include <string>

#include "core/sizes.hpp"
#include "mhla/torch.hpp"
#include "mhla/version.hpp"
#include "torch/checks.hpp"

namespace mhla {
namespace {

at::Tensor to_tensor(std::span<const double> values, std::int64_t blocks) {
  at::Tensor matrix = at::empty({blocks, blocks}, at::kDouble);
  std::copy(values.begin(), values.end(), static_cast<double*>(dispatch::mutable_data_of(matrix)));
  return matrix;
}

at::Tensor to_tensor(const std::vector<std::int64_t>& values) { return torch::tensor(values, at::kLong); }

// One dense double matrix of `mixing` per head (one for [M, M]).
std::vector<at::Tensor> matrices(const at::Tensor& mixing, const char* argument) {
  dispatch::check_matrix(mixing, argument);
  dispatch::check_floating(mixing, argument);
  const at::Tensor dense = dispatch::resolved(mixing, argument).detach().to(at::kCPU, at::kDouble).contiguous();
  return dense.dim() == 3 ? dense.unbind(0) : std::vector<at::Tensor>{dense};
}

std::span<double> values_of(const at::Tensor& matrix) {
  return {static_cast<double*>(dispatch::mutable_data_of(matrix)), static_cast<std::size_t>(matrix.numel())};
}

at::Tensor stack_like(const std::vector<at::Tensor>& parts, const at::Tensor& like) {
  return (like.dim() == 3 ? at::stack(parts) : parts[0]).to(like.device(), like.scalar_type());
}

Partition make_partition(at::IntArrayRef sizes, at::IntArrayRef extents) {
  return Partition::by_extent(std::span(sizes.data(), sizes.size()), std::span(extents.data(), extents.size()));
}

std::vector<std::int64_t> grid_extents(at::IntArrayRef sizes, at::IntArrayRef blocks) {
  const auto partition =
      Partition::grid(std::span(sizes.data(), sizes.size()), std::span(blocks.data(), blocks.size()));
  return {partition.extents().begin(), partition.extents().end()};
}

std::string describe(at::IntArrayRef sizes, at::IntArrayRef extents) {
  return make_partition(sizes, extents).describe();
}

std::tuple<at::Tensor, at::Tensor> token_places(at::IntArrayRef sizes, at::IntArrayRef extents) {
  const Partition partition = make_partition(sizes, extents);
  std::vector<std::int64_t> blocks, slots;
  for (auto* places : {&blocks, &slots})
    places->reserve(static_cast<std::size_t>(checked_elements("tokens", {partition.tokens()})));
  for (std::int64_t token = 0; token < partition.tokens(); ++token) {
    blocks.push_back(partition.block_of(token));
    slots.push_back(partition.slot_of(token));
  }
  return {to_tensor(blocks), to_tensor(slots)};
}

std::tuple<at::Tensor, at::Tensor> block_order(at::IntArrayRef sizes, at::IntArrayRef extents) {
  const Partition partition = make_partition(sizes, extents);
  return {to_tensor(partition.block_order()), to_tensor(partition.block_offsets())};
}

at::Tensor mixing_init_op(at::IntArrayRef sizes, at::IntArrayRef extents, std::string_view kind, double sigma,
                          double threshold, double value) {
  return mixing_tensor(make_partition(sizes, extents), parse_mixing_init(kind),
                       {.sigma = sigma, .threshold = threshold, .value = value}, at::kDouble);
}

at::Tensor resize_mixing_op(const at::Tensor& mixing, at::IntArrayRef from_sizes, at::IntArrayRef from_extents,
                            at::IntArrayRef to_sizes, at::IntArrayRef to_extents) {
  return resize_mixing(mixing, make_partition(from_sizes, from_extents), make_partition(to_sizes, to_extents));
}

at::Tensor extend_causal_mixing_op(const at::Tensor& mixing, std::int64_t blocks, std::string_view beyond) {
  std::vector<at::Tensor> parts = matrices(mixing, "mixing");
  for (at::Tensor& part : parts) {
    part = to_tensor(extend_causal_mixing(values_of(part), part.size(0), blocks, parse_beyond_trained(beyond)), blocks);
  }
  return stack_like(parts, mixing);
}

// The same without waiting for the device: a training step must not.
void project_on_device(const at::Tensor& mixing, bool normalize_rows, double low, double high) {
  dispatch::check_matrix(mixing, "mixing");
  dispatch::check_floating(mixing, "mixing");
  if (!(low <= high)) throw Error("low is " + std::to_string(low) + "; it may be at most " + std::to_string(high));
  at::Tensor values = mixing.to(at::kDouble).clamp(low, high);
  if (normalize_rows) {
    const at::Tensor sums = values.sum(-1, true);
    values = values / sums.masked_fill(sums == 0, 1);
  }
  mixing.copy_(values);
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): what the dispatcher takes for a tensor that is written
void project_mixing_op(at::Tensor mixing, bool normalize_rows, double low, double high) {
  project_mixing_(mixing, normalize_rows, low, high);
}

}  // namespace

at::Tensor mixing_tensor(const Partition& partition, MixingInit init, const MixingInitOptions& options,
                         at::ScalarType dtype) {
  return to_tensor(mixing_init(partition, init, options), partition.blocks()).to(dtype);
}

at::Tensor resize_mixing(const at::Tensor& mixing, const Partition& from, const Partition& to) {
  std::vector<at::Tensor> parts = matrices(mixing, "mixing");
  for (at::Tensor& part : parts) {
    part = to_tensor(resize_mixing(std::span<const double>(values_of(part)), from, to), to.blocks());
  }
  return stack_like(parts, mixing);
}

void project_mixing_(const at::Tensor& mixing, bool normalize_rows, double low, double high) {
  const torch::NoGradGuard no_grad;
  dispatch::check_dense(mixing, "mixing");
  if (!mixing.device().is_cpu()) return project_on_device(mixing, normalize_rows, low, high);
  const std::vector<at::Tensor> parts = matrices(mixing, "mixing");
  std::vector<at::Tensor> projected;
  for (const at::Tensor& part : parts) {
    projected.push_back(part.clone());
    project_mixing(values_of(projected.back()), part.size(0), normalize_rows, low, high);
  }
  mixing.copy_(stack_like(projected, mixing));
}

TORCH_LIBRARY_FRAGMENT(mhla, library) {
  library.def("version() -> str", [] { return std::string(version()); });
  library.def("grid_extents(int[] sizes, int[] blocks) -> int[]", &grid_extents);
  library.def("describe_partition(int[] sizes, int[] extents) -> str", &describe);
  library.def("token_places(int[] sizes, int[] extents) -> (Tensor block, Tensor slot)", &token_places);
  library.def("block_order(int[] sizes, int[] extents) -> (Tensor order, Tensor offsets)", &block_order);
  library.def("mixing_init(int[] sizes, int[] extents, str kind, float sigma, float threshold, float value) -> Tensor",
              &mixing_init_op);
  library.def(
      "resize_mixing(Tensor mixing, int[] from_sizes, int[] from_extents, int[] to_sizes, int[] to_extents) -> Tensor");
  library.def("extend_causal_mixing(Tensor mixing, int blocks, str beyond) -> Tensor");
  library.def("project_mixing_(Tensor(a!) mixing, bool normalize_rows, float low, float high) -> ()");
}

TORCH_LIBRARY_IMPL(mhla, CompositeExplicitAutograd, library) {
  library.impl("resize_mixing", &resize_mixing_op);
  library.impl("extend_causal_mixing", &extend_causal_mixing_op);
  library.impl("project_mixing_", &project_mixing_op);
}

}  // namespace mhla
