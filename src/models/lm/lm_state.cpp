// Rows of states.
#include "models/lm/lm_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mhla/types.hpp"

namespace mhla::models {
namespace {

at::Tensor padded_to(const at::Tensor& x, at::IntArrayRef sizes) {
  std::vector<std::int64_t> more;
  for (std::int64_t axis = x.dim() - 1; axis > 0; --axis) {
    more.push_back(0);
    more.push_back(sizes[static_cast<std::size_t>(axis)] - x.size(axis));
  }
  return at::constant_pad_nd(x, more);
}

// Rows of one tensor after those of another; axes that grow with the tokens are filled up.
at::Tensor appended(const at::Tensor& a, const at::Tensor& b) {
  if (a.dim() != b.dim() || a.scalar_type() != b.scalar_type())
    throw Error("states are of different models: they cannot be joined");
  std::vector<std::int64_t> sizes;
  sizes.reserve(static_cast<std::size_t>(a.dim()));
  for (std::int64_t axis = 0; axis < a.dim(); ++axis) sizes.push_back(std::max(a.size(axis), b.size(axis)));
  return at::cat({padded_to(a, sizes), padded_to(b, sizes)});
}

}  // namespace

LmState::LmState(std::vector<nn::LayerState> layers, std::int64_t batch, at::Device device)
    : layers_(std::move(layers)), seen_(static_cast<std::size_t>(batch)),
      positions_(at::zeros({batch}, at::TensorOptions(at::kLong).device(device))) {}

template <typename Change>
LmState LmState::changed(std::vector<std::int64_t> seen, const Change& change) const {
  LmState result = *this;
  for (nn::LayerState& layer : result.layers_)
    for (auto& item : layer)
      if (item.second.size(0) == batch()) item.second = change(item.second);
  result.seen_ = std::move(seen);
  result.positions_ = change(positions_);
  return result;
}

std::int64_t LmState::most_seen() const { return seen_.empty() ? 0 : std::ranges::max(seen_); }

std::size_t LmState::bytes() const {
  std::size_t bytes = positions_.nbytes();
  for (const nn::LayerState& layer : layers_)
    for (const auto& item : layer) bytes += item.second.nbytes();
  return bytes;
}

LmState LmState::fork() const {
  return changed(seen_, [](const at::Tensor& x) { return x.clone(); });
}

LmState LmState::rows(std::span<const std::int64_t> indices) const {
  std::vector<std::int64_t> seen;
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= batch())
      throw Error(fmt::format("row {} is not there; the state has {}", index, batch()));
    seen.push_back(seen_[static_cast<std::size_t>(index)]);
  }
  const at::Tensor wanted =
      torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()), at::kLong).to(positions_.device());
  return changed(std::move(seen), [&](const at::Tensor& x) { return x.index_select(0, wanted); });
}

LmState LmState::row(std::int64_t index) const {
  if (index < 0 || index >= batch()) throw Error(fmt::format("row {} is not there; the state has {}", index, batch()));
  return changed({seen_[static_cast<std::size_t>(index)]}, [&](const at::Tensor& x) { return x.narrow(0, index, 1); });
}

LmState LmState::first(std::int64_t count) const {
  if (count < 1 || count > batch())
    throw Error(fmt::format("count is {}; it must be 1 to the {} rows of the state", count, batch()));
  return changed({seen_.begin(), seen_.begin() + count}, [&](const at::Tensor& x) { return x.narrow(0, 0, count); });
}

LmState LmState::joined(std::span<const LmState> states) {
  if (states.empty()) throw Error("states is empty; at least one is needed");
  LmState result = states.front().fork();
  for (const LmState& other : states.subspan(1)) {
    if (other.layers_.size() != result.layers_.size())
      throw Error("states are of different models: they cannot be joined");
    for (std::size_t layer = 0; layer < result.layers_.size(); ++layer)
      for (auto& [name, tensor] : result.layers_[layer]) {
        const auto found = other.layers_[layer].find(name);
        if (found == other.layers_[layer].end()) throw Error("states are of different models: they cannot be joined");
        if (tensor.size(0) == result.batch()) tensor = appended(tensor, found->second);
      }
    result.seen_.insert(result.seen_.end(), other.seen_.begin(), other.seen_.end());
    result.positions_ = at::cat({result.positions_, other.positions_});
  }
  return result;
}

void LmState::put(std::int64_t index, const LmState& one) {
  constexpr std::int64_t kGrows = 2;  // axis
  if (index < 0 || index >= batch()) throw Error(fmt::format("row {} is not there; the state has {}", index, batch()));
  if (one.batch() != 1) throw Error(fmt::format("state has {} rows; one is needed", one.batch()));
  if (one.layers_.size() != layers_.size()) throw Error("states are of different models: a row cannot be put");
  for (std::size_t layer = 0; layer < layers_.size(); ++layer)
    for (auto& [name, tensor] : layers_[layer]) {
      const auto found = one.layers_[layer].find(name);
      if (found == one.layers_[layer].end() || found->second.dim() != tensor.dim())
        throw Error("states are of different models: a row cannot be put");
      const at::Tensor& source = found->second;
      if (tensor.size(0) != batch()) continue;
      if (tensor.dim() > kGrows && source.size(kGrows) > tensor.size(kGrows)) {
        std::vector<std::int64_t> sizes = tensor.sizes().vec();
        sizes[kGrows] = source.size(kGrows);
        tensor = padded_to(tensor, sizes);
      }
      at::Tensor row = tensor.narrow(0, index, 1);
      if (tensor.dim() > kGrows) row = row.narrow(kGrows, 0, source.size(kGrows));
      row.copy_(source);
    }
  seen_[static_cast<std::size_t>(index)] = one.seen_.front();
  positions_.narrow(0, index, 1).copy_(one.positions_);
}

bool LmState::same_position() const {
  return std::ranges::all_of(seen_, [&](std::int64_t seen) { return seen == seen_.front(); });
}

void LmState::advance(std::int64_t tokens) {
  for (std::int64_t& seen : seen_) seen += tokens;
  positions_.add_(tokens);
}

void LmState::set_seen(std::vector<std::int64_t> seen) {
  positions_.copy_(torch::tensor(seen, at::kLong));
  seen_ = std::move(seen);
}

}  // namespace mhla::models
