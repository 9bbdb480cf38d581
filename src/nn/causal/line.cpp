// Positions, documents and tables of rotations.
#include "nn/causal/line.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "mhla/types.hpp"

namespace mhla::nn {
namespace {

at::Tensor counted(std::int64_t tokens, at::Device device) {
  return at::arange(tokens, at::TensorOptions(at::kLong).device(device)).unsqueeze(0);
}

at::Tensor positions_in_documents(const std::vector<std::int64_t>& offsets) {
  const at::Tensor starts = torch::tensor(offsets, at::kLong);
  const at::Tensor lengths = starts.diff();
  return at::arange(offsets.back(), at::kLong) - starts.slice(0, 0, -1).repeat_interleave(lengths);
}

// torch rounds the last elements of a tensor in another way: here the rows of a batch are to have the bits they have
// alone.
template <typename Function>
at::Tensor one_by_one(const at::Tensor& x, const Function& function) {
  at::Tensor y = x.contiguous().clone();
  double* const values = y.mutable_data_ptr<double>();
  std::transform(values, values + y.numel(), values, function);
  return y;
}

// A copy to a GPU does not wait for it.
at::Tensor placed(const at::Tensor& x, at::Device device) {
  return device.is_cuda() ? x.pin_memory().to(device, /*non_blocking=*/true) : x.to(device);
}

}  // namespace

Line::Line(std::int64_t tokens, at::Device device) : positions_(counted(tokens, device)), end_(tokens) {}

Line::Line(std::vector<std::int64_t> offsets, at::Device device)
    : positions_(placed(positions_in_documents(offsets).unsqueeze(0), device)),
      cu_seqlens_(torch::tensor(offsets, at::kLong)), documents_(std::move(offsets)) {
  for (std::size_t d = 0; d + 1 < documents_.size(); ++d) end_ = std::max(end_, documents_[d + 1] - documents_[d]);
}

Line::Line(std::int64_t tokens, const at::Tensor& seen, std::int64_t most, bool same)
    : positions_(same ? counted(tokens, seen.device()) + most : seen.unsqueeze(1) + counted(tokens, seen.device())),
      end_(most + tokens) {
  if (same)
    seen_ = most;
  else
    seen_.reset();
}

const fused::RotaryTables& Line::rotary(std::int64_t dim, double base, at::ScalarType type) const {
  const Key key{{dim, base}, type};
  if (const auto found = tables_->find(key); found != tables_->end()) return found->second;
  const std::int64_t pairs = dim / 2;
  const at::Tensor exponents = at::arange(pairs, positions_.options().dtype(at::kDouble)) / -static_cast<double>(pairs);
  at::Tensor angles = positions_.to(at::kDouble).unsqueeze(2) * at::pow(base, exponents);  // [1 or B, T, pairs]
  if (angles.size(0) == 1) angles = angles.squeeze(0);
  const bool few = angles.is_cpu() && positions_.size(1) == 1;
  const at::Tensor cos = few ? one_by_one(angles, [](double x) { return std::cos(x); }) : angles.cos();
  const at::Tensor sin = few ? one_by_one(angles, [](double x) { return std::sin(x); }) : angles.sin();
  return tables_
      ->emplace(
          key,
          fused::RotaryTables{cos.to(type), sin.to(type), {positions_.size(1)}, {pairs}, fused::RotaryLayout::half})
      .first->second;
}

void check_documents(const std::vector<std::int64_t>& documents, std::int64_t batch, std::int64_t tokens) {
  const auto refuse = [](const std::string& reason) { throw Error("documents " + reason); };
  if (documents.size() < 2 || documents.front() != 0 || documents.back() != batch * tokens)
    refuse("do not go from 0 to " + std::to_string(batch * tokens) + ", the tokens of the batch");
  if (!std::ranges::is_sorted(documents)) refuse("are not in ascending order");
  for (std::int64_t row = 1; row < batch; ++row)
    if (!std::ranges::binary_search(documents, row * tokens))
      refuse("do not end at token " + std::to_string(row * tokens) + ", where row " + std::to_string(row) + " begins");
}

}  // namespace mhla::nn
