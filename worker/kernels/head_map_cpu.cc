#include <algorithm>

#include "worker/kernels/head_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/kernels/head_map_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "worker/kernels/small_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dex::kernels::rows::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using dex::kernels::HWY_NAMESPACE::Product;
using dex::kernels::HWY_NAMESPACE::Strided;

constexpr int64_t kRows = 48;  // at a time: they stay in the caches from head to head

template <class T>
void AddProducts(const T* x, T* y, std::span<const T* const> maps, int64_t rows, int64_t width) {
  const hn::CappedTag<T, 16> d;
  const int64_t stride = static_cast<int64_t>(maps.size()) * width;
  for (int64_t at = 0; at < rows; at += kRows, x += kRows * stride, y += kRows * stride) {
    const int64_t count = std::min(kRows, rows - at);
    std::copy_n(x, count * stride, y);
    for (size_t h = 0; h < maps.size(); ++h) {
      if (maps[h] == nullptr) continue;
      const int64_t first = static_cast<int64_t>(h) * width;
      Product(d, count, width, width, Strided<T>{x + first, stride, 1}, maps[h], width, y + first,
              stride, true);
    }
  }
}

template <class T>
void AddGrams(const T* x, const T* y, std::span<T* const> sums, int64_t rows, int64_t width) {
  const hn::CappedTag<T, 16> d;
  const int64_t stride = static_cast<int64_t>(sums.size()) * width;
  for (int64_t at = 0; at < rows; at += kRows, x += kRows * stride, y += kRows * stride) {
    const int64_t count = std::min(kRows, rows - at);
    for (size_t h = 0; h < sums.size(); ++h) {
      if (sums[h] == nullptr) continue;
      const int64_t first = static_cast<int64_t>(h) * width;
      Product(d, width, width, count, Strided<T>{x + first, 1, stride}, y + first, stride, sums[h],
              width, true);
    }
  }
}

void ProductsF32(const float* x, float* y, std::span<const float* const> maps, int64_t rows,
                 int64_t width) {
  AddProducts(x, y, maps, rows, width);
}
void ProductsF64(const double* x, double* y, std::span<const double* const> maps, int64_t rows,
                 int64_t width) {
  AddProducts(x, y, maps, rows, width);
}
void GramsF32(const float* x, const float* y, std::span<float* const> sums, int64_t rows,
              int64_t width) {
  AddGrams(x, y, sums, rows, width);
}
void GramsF64(const double* x, const double* y, std::span<double* const> sums, int64_t rows,
              int64_t width) {
  AddGrams(x, y, sums, rows, width);
}

}  // namespace dex::kernels::rows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex::kernels::rows {
HWY_EXPORT(ProductsF32);
HWY_EXPORT(ProductsF64);
HWY_EXPORT(GramsF32);
HWY_EXPORT(GramsF64);

template <>
void add_head_products(const float* x, float* y, std::span<const float* const> maps, int64_t rows,
                       int64_t width) {
  HWY_DYNAMIC_DISPATCH(ProductsF32)(x, y, maps, rows, width);
}
template <>
void add_head_products(const double* x, double* y, std::span<const double* const> maps,
                       int64_t rows, int64_t width) {
  HWY_DYNAMIC_DISPATCH(ProductsF64)(x, y, maps, rows, width);
}
template <>
void add_head_grams(const float* x, const float* y, std::span<float* const> sums, int64_t rows,
                    int64_t width) {
  HWY_DYNAMIC_DISPATCH(GramsF32)(x, y, sums, rows, width);
}
template <>
void add_head_grams(const double* x, const double* y, std::span<double* const> sums, int64_t rows,
                    int64_t width) {
  HWY_DYNAMIC_DISPATCH(GramsF64)(x, y, sums, rows, width);
}
}  // namespace dex::kernels::rows
#endif
