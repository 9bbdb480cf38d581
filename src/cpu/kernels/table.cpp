// The table of kernels of this instruction set.
#include "cpu/kernels/table.hpp"

#include "cpu/dispatch.hpp"

namespace mhla::cpu::MHLA_ISA {

template <typename T>
const Kernels<T>& table() {
  static constexpr Kernels<T> kTable{
      .product_k_major = product_k_major<T>,
      .product_rows = product_rows<T>,
      .gram = gram<T>,
      .row_product = row_product<T>,
      .load = load<T>,
      .store = store<T>,
      .store_gradient = store_gradient<T>,
      .transpose = transpose<T>,
      .row_dots = row_dots<T>,
      .pair_dots = pair_dots<T>,
      .add_rows = add_rows<T>,
      .add_outer = add_outer<T>,
      .scale_rows = scale_rows<T>,
      .add_scaled = add_scaled<T>,
      .stream_token = stream_token<T>,
  };
  return kTable;
}

template const Kernels<float>& table<float>();
template const Kernels<double>& table<double>();

}  // namespace mhla::cpu::MHLA_ISA
