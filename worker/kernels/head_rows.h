#pragma once

#include <cstdint>
#include <span>

// The loops under head_map.h: rows of heads [rows, maps.size()·width], plain pointers, vectorised
// by Highway with run-time dispatch. T is float or double. Single-threaded: callers split the rows.
namespace dex::kernels::rows {

// y_h = x_h + x_h·maps[h], maps [width, width] each; null: y_h = x_h. x and y don't overlap.
template <class T>
void add_head_products(const T* x, T* y, std::span<const T* const> maps, int64_t rows,
                       int64_t width);

// sums[h] [width, width] += x_hᵀ·y_h over the rows; null: not asked for.
template <class T>
void add_head_grams(const T* x, const T* y, std::span<T* const> sums, int64_t rows, int64_t width);

}  // namespace dex::kernels::rows
