#include "worker/kernels/rows.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/kernels/rms_norm_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dex::kernels::rows::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
void Forward(const T* x, const T* weight, T* y, T* rstd, int64_t rows, int64_t width, double eps) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
    int64_t i = 0;
    for (; i + 2 * lanes <= width; i += 2 * lanes) {
      const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
      sum0 = hn::MulAdd(a, a, sum0);
      sum1 = hn::MulAdd(b, b, sum1);
    }
    T sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
    for (; i < width; ++i) sum += x[i] * x[i];
    const T r = T(1) / std::sqrt(sum / static_cast<T>(width) + static_cast<T>(eps));
    rstd[row] = r;
    const auto factor = hn::Set(d, r);
    for (i = 0; i + lanes <= width; i += lanes) {
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), factor), hn::LoadU(d, weight + i)), d, y + i);
    }
    for (; i < width; ++i) y[i] = x[i] * r * weight[i];
  }
}

template <class T>
void Backward(const T* dy, const T* x, const T* weight, const T* rstd, T* dx, int64_t rows,
              int64_t width) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < rows; ++row, dy += width, x += width, dx += width) {
    auto acc = hn::Zero(d);
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) {
      acc = hn::MulAdd(hn::Mul(hn::LoadU(d, weight + i), hn::LoadU(d, dy + i)), hn::LoadU(d, x + i),
                       acc);
    }
    T dot = hn::GetLane(hn::SumOfLanes(d, acc));
    for (; i < width; ++i) dot += weight[i] * dy[i] * x[i];
    const T r = rstd[row];
    const T back = dot * r * r * r / static_cast<T>(width);
    const auto r_v = hn::Set(d, r), back_v = hn::Set(d, back);
    for (i = 0; i + lanes <= width; i += lanes) {
      const auto forward = hn::Mul(hn::Mul(hn::LoadU(d, weight + i), hn::LoadU(d, dy + i)), r_v);
      hn::StoreU(hn::NegMulAdd(hn::LoadU(d, x + i), back_v, forward), d, dx + i);
    }
    for (; i < width; ++i) dx[i] = r * weight[i] * dy[i] - x[i] * back;
  }
}

void ForwardF32(const float* x, const float* w, float* y, float* rstd, int64_t rows, int64_t width,
                double eps) {
  Forward(x, w, y, rstd, rows, width, eps);
}
void ForwardF64(const double* x, const double* w, double* y, double* rstd, int64_t rows,
                int64_t width, double eps) {
  Forward(x, w, y, rstd, rows, width, eps);
}
void BackwardF32(const float* dy, const float* x, const float* w, const float* rstd, float* dx,
                 int64_t rows, int64_t width) {
  Backward(dy, x, w, rstd, dx, rows, width);
}
void BackwardF64(const double* dy, const double* x, const double* w, const double* rstd, double* dx,
                 int64_t rows, int64_t width) {
  Backward(dy, x, w, rstd, dx, rows, width);
}

}  // namespace dex::kernels::rows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex::kernels::rows {
HWY_EXPORT(ForwardF32);
HWY_EXPORT(ForwardF64);
HWY_EXPORT(BackwardF32);
HWY_EXPORT(BackwardF64);

template <>
void rms_norm(const float* x, const float* weight, float* y, float* rstd, int64_t rows,
              int64_t width, double eps) {
  HWY_DYNAMIC_DISPATCH(ForwardF32)(x, weight, y, rstd, rows, width, eps);
}
template <>
void rms_norm(const double* x, const double* weight, double* y, double* rstd, int64_t rows,
              int64_t width, double eps) {
  HWY_DYNAMIC_DISPATCH(ForwardF64)(x, weight, y, rstd, rows, width, eps);
}
template <>
void rms_norm_backward(const float* dy, const float* x, const float* weight, const float* rstd,
                       float* dx, int64_t rows, int64_t width) {
  HWY_DYNAMIC_DISPATCH(BackwardF32)(dy, x, weight, rstd, dx, rows, width);
}
template <>
void rms_norm_backward(const double* dy, const double* x, const double* weight, const double* rstd,
                       double* dx, int64_t rows, int64_t width) {
  HWY_DYNAMIC_DISPATCH(BackwardF64)(dy, x, weight, rstd, dx, rows, width);
}
}  // namespace dex::kernels::rows
#endif
