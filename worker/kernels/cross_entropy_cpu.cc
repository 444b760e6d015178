#include "worker/kernels/rows.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/kernels/cross_entropy_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace dex::kernels::rows::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
T Largest(const T* z, int64_t width) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  T largest = z[0];
  int64_t i = 0;
  if (width >= lanes) {
    auto top = hn::LoadU(d, z);
    for (i = lanes; i + lanes <= width; i += lanes) top = hn::Max(top, hn::LoadU(d, z + i));
    largest = hn::GetLane(hn::MaxOfLanes(d, top));
  }
  for (; i < width; ++i) largest = std::max(largest, z[i]);
  return largest;
}

// z ← exp(z − top), and its sum. Exp's argument is at most 0; below the floor it counts as the
// floor (1e-38).
template <class T>
T Exponentials(T* z, int64_t width, T top) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto top_v = hn::Set(d, top),
             floor = hn::Set(d, static_cast<T>(sizeof(T) == 4 ? -87 : -700));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= width; i += 2 * lanes) {
    const auto a = hn::Exp(d, hn::Max(floor, hn::Sub(hn::LoadU(d, z + i), top_v)));
    const auto b = hn::Exp(d, hn::Max(floor, hn::Sub(hn::LoadU(d, z + i + lanes), top_v)));
    hn::StoreU(a, d, z + i);
    hn::StoreU(b, d, z + i + lanes);
    sum0 = hn::Add(sum0, a);
    sum1 = hn::Add(sum1, b);
  }
  T sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < width; ++i) sum += (z[i] = std::exp(z[i] - top));
  return sum;
}

template <class T>
void Scale(T* z, int64_t width, T factor) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor_v = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, z + i), factor_v), d, z + i);
  for (; i < width; ++i) z[i] *= factor;
}

template <class T>
T SoftmaxLoss(T* z, int64_t width, int64_t target, T scale) {
  const T top = Largest(z, width), wanted = z[target];
  const T sum = Exponentials(z, width, top);
  if (scale != 0) {
    Scale(z, width, scale / sum);
    z[target] -= scale;
  }
  return std::log(sum) + top - wanted;
}

float SoftmaxLossF32(float* z, int64_t width, int64_t target, float scale) {
  return SoftmaxLoss(z, width, target, scale);
}
double SoftmaxLossF64(double* z, int64_t width, int64_t target, double scale) {
  return SoftmaxLoss(z, width, target, scale);
}

}  // namespace dex::kernels::rows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex::kernels::rows {
HWY_EXPORT(SoftmaxLossF32);
HWY_EXPORT(SoftmaxLossF64);

template <>
float softmax_loss(float* logits, int64_t width, int64_t target, float scale) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxLossF32)(logits, width, target, scale);
}
template <>
double softmax_loss(double* logits, int64_t width, int64_t target, double scale) {
  return HWY_DYNAMIC_DISPATCH(SoftmaxLossF64)(logits, width, target, scale);
}
}  // namespace dex::kernels::rows
#endif
