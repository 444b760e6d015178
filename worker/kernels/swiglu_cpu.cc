#include "worker/kernels/rows.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/kernels/swiglu_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace dex::kernels::rows::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// σ(x). The clamp keeps Exp inside its range; beyond it σ is 0 or 1 to rounding anyway.
template <class D, class V = hn::Vec<D>>
V Sigmoid(D d, V x) {
  const auto limit = hn::Set(d, static_cast<hn::TFromD<D>>(sizeof(hn::TFromD<D>) == 4 ? 87 : 700));
  const auto one = hn::Set(d, hn::TFromD<D>(1));
  const auto e = hn::Exp(d, hn::Min(limit, hn::Max(hn::Neg(limit), hn::Neg(x))));
  return hn::Div(one, hn::Add(one, e));
}

template <class T>
void Forward(const T* gate, const T* up, T* y, int64_t count) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto g = hn::LoadU(d, gate + i);
    hn::StoreU(hn::Mul(hn::Mul(g, Sigmoid(d, g)), hn::LoadU(d, up + i)), d, y + i);
  }
  for (; i < count; ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
}

template <class T>
void Backward(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t count) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, T(1));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto g = hn::LoadU(d, gate + i), out = hn::LoadU(d, dy + i);
    const auto s = Sigmoid(d, g);
    const auto slope =
        hn::Mul(s, hn::MulAdd(g, hn::Sub(one, s), one));  // silu'(g) = σ·(1 + g·(1 − σ))
    hn::StoreU(hn::Mul(hn::Mul(out, hn::LoadU(d, up + i)), slope), d, dgate + i);
    hn::StoreU(hn::Mul(out, hn::Mul(g, s)), d, dup + i);
  }
  for (; i < count; ++i) {
    const T s = 1 / (1 + std::exp(-gate[i]));
    dgate[i] = dy[i] * up[i] * s * (1 + gate[i] * (1 - s));
    dup[i] = dy[i] * gate[i] * s;
  }
}

void ForwardF32(const float* gate, const float* up, float* y, int64_t count) {
  Forward(gate, up, y, count);
}
void ForwardF64(const double* gate, const double* up, double* y, int64_t count) {
  Forward(gate, up, y, count);
}
void BackwardF32(const float* dy, const float* gate, const float* up, float* dgate, float* dup,
                 int64_t count) {
  Backward(dy, gate, up, dgate, dup, count);
}
void BackwardF64(const double* dy, const double* gate, const double* up, double* dgate, double* dup,
                 int64_t count) {
  Backward(dy, gate, up, dgate, dup, count);
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
void swiglu(const float* gate, const float* up, float* y, int64_t count) {
  HWY_DYNAMIC_DISPATCH(ForwardF32)(gate, up, y, count);
}
template <>
void swiglu(const double* gate, const double* up, double* y, int64_t count) {
  HWY_DYNAMIC_DISPATCH(ForwardF64)(gate, up, y, count);
}
template <>
void swiglu_backward(const float* dy, const float* gate, const float* up, float* dgate, float* dup,
                     int64_t count) {
  HWY_DYNAMIC_DISPATCH(BackwardF32)(dy, gate, up, dgate, dup, count);
}
template <>
void swiglu_backward(const double* dy, const double* gate, const double* up, double* dgate,
                     double* dup, int64_t count) {
  HWY_DYNAMIC_DISPATCH(BackwardF64)(dy, gate, up, dgate, dup, count);
}
}  // namespace dex::kernels::rows
#endif
