// The two algorithms of the CPU back end. `T` is the arithmetic type.
#pragma once

#include <cstddef>

#include "mhla/attention.hpp"

namespace mhla::cpu {

// Linear in tokens: S_b per block, mixed, read out by the queries.
namespace summary {
template <typename T>
std::size_t kept_bytes(const Problem& problem);
template <typename T>
std::size_t forward_workspace(const Problem& problem, int threads);
template <typename T>
void forward(const Problem& problem, const ForwardArgs& args, const Parallel& parallel, int threads);
template <typename T>
std::size_t backward_workspace(const Problem& problem, int threads);
template <typename T>
void backward(const Problem& problem, const BackwardArgs& args, const Parallel& parallel, int threads);
}  // namespace summary

// Quadratic in tokens: the weighted product (Q K^T) * m of a whole sequence, tile by tile.
namespace dense {
template <typename T>
std::size_t forward_workspace(const Problem& problem, int threads);
template <typename T>
void forward(const Problem& problem, const ForwardArgs& args, const Parallel& parallel, int threads);
template <typename T>
std::size_t backward_workspace(const Problem& problem, int threads);
template <typename T>
void backward(const Problem& problem, const BackwardArgs& args, const Parallel& parallel, int threads);
}  // namespace dense

}  // namespace mhla::cpu
