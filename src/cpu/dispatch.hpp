// The kernel tables of each instruction set, defined by compiling src/cpu/kernels once for each.
#pragma once

#include "cpu/kernels.hpp"

namespace mhla::cpu {

namespace portable {
template <typename T>
const Kernels<T>& table();
}
namespace avx2 {
template <typename T>
const Kernels<T>& table();
}
namespace avx512 {
template <typename T>
const Kernels<T>& table();
}

}  // namespace mhla::cpu
