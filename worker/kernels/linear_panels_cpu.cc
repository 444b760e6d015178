#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/kernels/linear_panels_cpu.cc"
#include <hwy/foreach_target.h>  // includes this file once an instruction set
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>

#include "worker/kernels/linear_panels.h"

HWY_BEFORE_NAMESPACE();
namespace dex::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that a panel is a whole number of pairs of vectors.
using F = hn::CappedTag<float, kPanelOutputs / 2>;
using V = hn::Vec<F>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F()));
constexpr int kWide = HWY_TARGET <= HWY_AVX3 ? 1 : 0;  // 32 registers instead of 16

HWY_INLINE V load(F d, const float* p) {
  return hn::LoadU(d, p);
}
HWY_INLINE V load(F d, const uint16_t* p) {
  const hn::Repartition<uint32_t, F> u32;
  const hn::Rebind<uint16_t, decltype(u32)> u16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(u32, hn::LoadU(u16, p))));
}
HWY_INLINE V load(F d, const int8_t* p) {
  const hn::Repartition<int32_t, F> i32;
  const hn::Rebind<int8_t, decltype(i32)> i8;
  return hn::ConvertTo(d, hn::PromoteTo(i32, hn::LoadU(i8, p)));
}

// R rows times N vectors of a panel's outputs; the sums live in registers.
template <int R, int N, class W>
HWY_INLINE void panel_sums(const float* HWY_RESTRICT x, int64_t x_stride, const W* HWY_RESTRICT w,
                           int64_t columns, bool ahead, float* HWY_RESTRICT out) {
  // Far enough for memory, near enough for the first cache.
  constexpr int64_t kAhead = 8192 / sizeof(W);
  const F d;
  V sum[R][N];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < N; ++v) sum[r][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < columns; ++k) {
    const W* at = w + k * kPanelOutputs;
    if (ahead) {
      hwy::Prefetch(at + kAhead);
      if (sizeof(W) == 4) hwy::Prefetch(at + kAhead + kPanelOutputs / 2);
    }
    V weight[N];
#pragma GCC unroll 16
    for (int v = 0; v < N; ++v) weight[v] = load(d, at + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const V in = hn::Set(d, x[r * x_stride + k]);
#pragma GCC unroll 16
      for (int v = 0; v < N; ++v) sum[r][v] = hn::MulAdd(in, weight[v], sum[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < N; ++v) hn::StoreU(sum[r][v], d, out + r * kPanelOutputs + v * kLanes);
  }
}

// Where the sums of a panel go.
struct Target {
  float* y;  // of its first output
  int64_t stride;
  int64_t from, to;     // outputs of the panel's 32
  const float* scales;  // of its outputs; null: none
  Store store;
};

HWY_INLINE void put(const float* sums, const Target& target, int64_t row) {
  float* y = target.y + row * target.stride;
  for (int64_t n = target.from; n < target.to; ++n) {
    const float sum = target.scales == nullptr ? sums[n] : sums[n] * target.scales[n];
    y[n] = target.store == Store::kAdd ? y[n] + sum : sum;
  }
}

template <int R, class W>
void rows_times_panel(const float* x, int64_t x_stride, const W* w, int64_t columns, bool ahead,
                      const Target& target, int64_t row) {
  // R·N sums, N weights and an input must fit.
  constexpr int kVectors = static_cast<int>(kPanelOutputs) / kLanes;
  constexpr int N = kWide || R > 2 ? 2 : std::min(4, kVectors);
  HWY_ALIGN float sums[R * kPanelOutputs];
  for (int v = 0; v < kVectors; v += N) {
    panel_sums<R, N>(x + row * x_stride, x_stride, w + v * kLanes, columns, ahead && v == 0,
                     sums + v * kLanes);
  }
  for (int r = 0; r < R; ++r) put(sums + r * kPanelOutputs, target, row + r);
}

template <class W>
void all_rows(const float* x, int64_t x_stride, int64_t rows, const W* w, int64_t columns,
              bool from_memory, const Target& target) {
  for (int64_t r = 0; r < rows;) {
    const int64_t left = rows - r;
    const bool ahead = from_memory && r == 0;
    if (kWide && left >= 8) {
      rows_times_panel<8>(x, x_stride, w, columns, ahead, target, r), r += 8;
    } else if (left >= 6 && !kWide) {
      rows_times_panel<6>(x, x_stride, w, columns, ahead, target, r), r += 6;
    } else if (left >= 4) {
      rows_times_panel<4>(x, x_stride, w, columns, ahead, target, r), r += 4;
    } else if (left >= 2) {
      rows_times_panel<2>(x, x_stride, w, columns, ahead, target, r), r += 2;
    } else {
      rows_times_panel<1>(x, x_stride, w, columns, ahead, target, r), r += 1;
    }
  }
}

template <class W>
void widen_panel(const W* w, int64_t columns, float* out) {
  constexpr int64_t kAhead = 8192 / sizeof(W);
  const F d;
  for (int64_t i = 0; i < columns * kPanelOutputs; i += kPanelOutputs) {
    hwy::Prefetch(w + i + kAhead);
    for (int64_t v = 0; v < kPanelOutputs; v += kLanes)
      hn::StoreU(load(d, w + i + v), d, out + i + v);
  }
}

template <class W>
void panels(const float* x, int64_t x_stride, int64_t rows, const WeightView& w, int64_t begin,
            int64_t end, float* y, int64_t y_stride, Store store, float* scratch) {
  constexpr int64_t kRowsWorthWidening = 16;
  for (int64_t first = begin / kPanelOutputs * kPanelOutputs; first < end; first += kPanelOutputs) {
    const W* panel = static_cast<const W*>(w.data) + first * w.columns;
    const Target target{y + first,
                        y_stride,
                        std::max<int64_t>(0, begin - first),
                        std::min<int64_t>(kPanelOutputs, end - first),
                        w.number == Number::kInt8 ? w.scales + first : nullptr,
                        store};
    if (sizeof(W) < 4 && rows >= kRowsWorthWidening) {
      widen_panel(panel, w.columns, scratch);
      all_rows(x, x_stride, rows, scratch, w.columns, false, target);
    } else {
      all_rows(x, x_stride, rows, panel, w.columns, true, target);
    }
  }
}

void LinearPanels(const float* x, int64_t x_stride, int64_t rows, const WeightView& w,
                  int64_t begin, int64_t end, float* y, int64_t y_stride, Store store,
                  float* scratch) {
  if (w.number == Number::kInt8) {
    panels<int8_t>(x, x_stride, rows, w, begin, end, y, y_stride, store, scratch);
  } else if (w.number == Number::kBf16) {
    panels<uint16_t>(x, x_stride, rows, w, begin, end, y, y_stride, store, scratch);
  } else {
    panels<float>(x, x_stride, rows, w, begin, end, y, y_stride, store, scratch);
  }
}

}  // namespace dex::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex::kernels {

HWY_EXPORT(LinearPanels);

void linear_panels(const float* x, int64_t x_stride, int64_t rows, const WeightView& w,
                   int64_t begin, int64_t end, float* y, int64_t y_stride, Store store,
                   float* scratch) {
  HWY_DYNAMIC_DISPATCH(LinearPanels)
  (x, x_stride, rows, w, begin, end, y, y_stride, store, scratch);
}

}  // namespace dex::kernels
#endif
