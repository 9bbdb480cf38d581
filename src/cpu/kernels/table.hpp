// Declarations of this instruction set's kernels; cpu/kernels.hpp says what each does.
#pragma once

#include "cpu/kernels.hpp"

namespace mhla::cpu::MHLA_ISA {

template <typename T>
void product_k_major(const Product<T>& p);
template <typename T>
void product_rows(const Product<T>& p);
template <typename T>
void gram(std::int64_t rows, std::int64_t columns, std::int64_t n, const T* x, std::int64_t ldx, const T* y,
          std::int64_t ldy, T* acc);

template <typename T>
void row_product(const RowProductPart<T>& p);

template <typename T>
void load(const Rows& rows, const Features& features, const void* from, T* tile);
template <typename T>
void store(const Rows& rows, const T* tile, const T* factor, void* to);
template <typename T>
void store_gradient(const Rows& rows, const Features& features, const T* tile, const void* x, std::int64_t x_stride,
                    void* to);

template <typename T>
void transpose(std::int64_t rows, std::int64_t columns, const T* in, std::int64_t ld_in, T* out, std::int64_t ld_out);

template <typename T>
void row_dots(std::int64_t rows, std::int64_t width, const T* tile, const T* x, bool accumulate, T* out);
template <typename T>
void pair_dots(std::int64_t rows, std::int64_t width, const T* a, const T* b, bool accumulate, T* out);
template <typename T>
void add_rows(std::int64_t rows, std::int64_t width, const T* tile, const T* factor, T* to);
template <typename T>
void add_outer(std::int64_t rows, std::int64_t width, const T* factor, const T* x, T* tile);
template <typename T>
void scale_rows(std::int64_t rows, std::int64_t width, const T* factor, T* tile);
template <typename T>
void add_scaled(std::int64_t n, T factor, const T* from, T* to);

template <typename T>
void stream_token(const StreamToken<T>& d);

}  // namespace mhla::cpu::MHLA_ISA
