#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/kernels/row_ops_cpu.cc"
#include <hwy/foreach_target.h>  // includes this file once an instruction set
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>  // must follow

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "worker/kernels/row_ops.h"

HWY_BEFORE_NAMESPACE();
namespace dex::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using V = hn::Vec<F>;

HWY_INLINE V load(F d, const float* p) {
  return hn::LoadU(d, p);
}
HWY_INLINE V load(F d, const uint16_t* p) {
  const hn::Repartition<uint32_t, F> u32;
  const hn::Rebind<uint16_t, decltype(u32)> u16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(u32, hn::LoadU(u16, p))));
}
HWY_INLINE float widen(float value) {
  return value;
}
HWY_INLINE float widen(uint16_t value) {
  const uint32_t bits = uint32_t{value} << 16;
  float result;
  __builtin_memcpy(&result, &bits, sizeof(result));
  return result;
}

template <class W>
HWY_INLINE void scale_row(const float* x, const W* weight, int64_t columns, float scale, float* y) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= columns; i += lanes) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale)), load(d, weight + i)), d,
               y + i);
  }
  for (; i < columns; ++i) y[i] = x[i] * scale * widen(weight[i]);
}

void RmsNormRow(const float* x, const WeightView& weight, float eps, float* y) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= weight.columns; i += lanes) {
    const V v = hn::LoadU(d, x + i);
    sum = hn::MulAdd(v, v, sum);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < weight.columns; ++i) total += x[i] * x[i];
  const float scale = 1.0F / std::sqrt(total / static_cast<float>(weight.columns) + eps);
  if (weight.number == Number::kBf16) {
    scale_row(x, static_cast<const uint16_t*>(weight.data), weight.columns, scale, y);
  } else {
    scale_row(x, static_cast<const float*>(weight.data), weight.columns, scale, y);
  }
}

void SiluMul(float* gate, const float* up, int64_t count) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V one = hn::Set(d, 1.0F);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const V g = hn::LoadU(d, gate + i);
    const V silu = hn::Div(g, hn::Add(one, hn::Exp(d, hn::Neg(g))));
    hn::StoreU(hn::Mul(silu, hn::LoadU(d, up + i)), d, gate + i);
  }
  for (; i < count; ++i) gate[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
}

float Maximum(const float* x, int64_t count) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float best = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  if (count >= lanes) {
    V most = hn::Set(d, best);
    for (; i + lanes <= count; i += lanes) {
      const V v = hn::LoadU(d, x + i);
      most = hn::IfThenElse(hn::Gt(v, most), v, most);  // false for NaN
    }
    best = hn::GetLane(hn::MaxOfLanes(d, most));
  }
  for (; i < count; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

int64_t ArgMax(const float* x, int64_t count) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float most = Maximum(x, count);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto found = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, x + i), hn::Set(d, most)));
    if (found >= 0) return i + static_cast<int64_t>(found);
  }
  for (; i < count; ++i) {
    if (x[i] == most) return i;
  }
  return 0;
}

// Sums in double every 4,096 elements, so that 50,000 small terms lose nothing to the large ones.
template <bool kStore>
HWY_INLINE double exp_sum(float* out, const float* x, int64_t count, float maximum, float scale) {
  const F d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const V most = hn::Set(d, maximum), factor = hn::Set(d, scale);
  double total = 0;
  int64_t i = 0;
  while (i + lanes <= count) {
    const int64_t stop = std::min(count, i + 4096);
    V sum = hn::Zero(d);
    for (; i + lanes <= stop; i += lanes) {
      const V v = hn::Mul(hn::Sub(hn::LoadU(d, x + i), most), factor);
      const V e = hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(d, v));  // Exp clamps, NaN included
      if (kStore) hn::StoreU(e, d, out + i);
      sum = hn::Add(sum, e);
    }
    total += hn::GetLane(hn::SumOfLanes(d, sum));
  }
  for (; i < count; ++i) {
    const float e = std::exp((x[i] - maximum) * scale);
    if (kStore) out[i] = e;
    total += e;
  }
  return total;
}

double ExpSum(const float* x, int64_t count, float maximum) {
  return exp_sum<false>(nullptr, x, count, maximum, 1.0F);
}
double ExpScaled(float* x, int64_t count, float maximum, float scale) {
  return exp_sum<true>(x, x, count, maximum, scale);
}

}  // namespace dex::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex::kernels {

HWY_EXPORT(RmsNormRow);
HWY_EXPORT(SiluMul);
HWY_EXPORT(Maximum);
HWY_EXPORT(ArgMax);
HWY_EXPORT(ExpSum);
HWY_EXPORT(ExpScaled);

namespace {

float widen(uint16_t value) {
  const uint32_t bits = uint32_t{value} << 16;
  float result;
  __builtin_memcpy(&result, &bits, sizeof(result));
  return result;
}

}  // namespace

void rms_norm_row(const float* x, const WeightView& weight, float eps, float* y) {
  HWY_DYNAMIC_DISPATCH(RmsNormRow)(x, weight, eps, y);
}

void rope_head(float* head, int64_t head_dim, const float* cos, const float* sin) {
  const int64_t half = head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[i], b = head[i + half];
    head[i] = a * cos[i] - b * sin[i];
    head[i + half] = b * cos[i] + a * sin[i];
  }
}

void silu_mul(float* gate, const float* up, int64_t count) {
  HWY_DYNAMIC_DISPATCH(SiluMul)(gate, up, count);
}

void widen_row(const WeightView& weight, int64_t row, float* y) {
  const int64_t first = row * weight.columns;
  if (weight.number == Number::kF32) {
    std::copy_n(static_cast<const float*>(weight.data) + first, weight.columns, y);
    return;
  }
  const auto* in = static_cast<const uint16_t*>(weight.data) + first;
  for (int64_t i = 0; i < weight.columns; ++i) y[i] = widen(in[i]);
}

void add_bias(const WeightView& bias, int64_t begin, int64_t end, float* y) {
  for (int64_t i = begin; i < end; ++i) {
    y[i] += bias.number == Number::kF32 ? static_cast<const float*>(bias.data)[i]
                                        : widen(static_cast<const uint16_t*>(bias.data)[i]);
  }
}

double log_sum_exp(std::span<const float> x) {
  const auto count = static_cast<int64_t>(x.size());
  const float maximum = HWY_DYNAMIC_DISPATCH(Maximum)(x.data(), count);
  return maximum + std::log(HWY_DYNAMIC_DISPATCH(ExpSum)(x.data(), count, maximum));
}

double exp_scaled(std::span<float> x, float maximum, float scale) {
  return HWY_DYNAMIC_DISPATCH(ExpScaled)(x.data(), static_cast<int64_t>(x.size()), maximum, scale);
}

int64_t arg_max(std::span<const float> x) {
  return HWY_DYNAMIC_DISPATCH(ArgMax)(x.data(), static_cast<int64_t>(x.size()));
}

}  // namespace dex::kernels
#endif
