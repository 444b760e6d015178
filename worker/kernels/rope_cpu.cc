#include "worker/kernels/rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/kernels/rope_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dex::kernels::rows::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
void Rotate(const T* x, const T* cos, const T* sin, T* y, int64_t rows, int64_t heads, int64_t half,
            T direction) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto sign = hn::Set(d, direction);
  for (int64_t row = 0; row < rows; ++row, cos += half, sin += half) {
    for (int64_t head = 0; head < heads; ++head, x += 2 * half, y += 2 * half) {
      int64_t i = 0;
      for (; i + lanes <= half; i += lanes) {
        const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + half + i);
        const auto c = hn::LoadU(d, cos + i), s = hn::Mul(sign, hn::LoadU(d, sin + i));
        hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, y + i);
        hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, y + half + i);
      }
      for (; i < half; ++i) {
        const T a = x[i], b = x[half + i], s = direction * sin[i];
        y[i] = a * cos[i] - b * s;
        y[half + i] = b * cos[i] + a * s;
      }
    }
  }
}

void RotateF32(const float* x, const float* cos, const float* sin, float* y, int64_t rows,
               int64_t heads, int64_t half, float direction) {
  Rotate(x, cos, sin, y, rows, heads, half, direction);
}
void RotateF64(const double* x, const double* cos, const double* sin, double* y, int64_t rows,
               int64_t heads, int64_t half, double direction) {
  Rotate(x, cos, sin, y, rows, heads, half, direction);
}

}  // namespace dex::kernels::rows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex::kernels::rows {
HWY_EXPORT(RotateF32);
HWY_EXPORT(RotateF64);

template <>
void rope(const float* x, const float* cos, const float* sin, float* y, int64_t rows, int64_t heads,
          int64_t half, double direction) {
  HWY_DYNAMIC_DISPATCH(RotateF32)(x, cos, sin, y, rows, heads, half, static_cast<float>(direction));
}
template <>
void rope(const double* x, const double* cos, const double* sin, double* y, int64_t rows,
          int64_t heads, int64_t half, double direction) {
  HWY_DYNAMIC_DISPATCH(RotateF64)(x, cos, sin, y, rows, heads, half, direction);
}
}  // namespace dex::kernels::rows
#endif
