#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/kernels/linear_int4_cpu.cc"
#include <hwy/foreach_target.h>  // includes this file once an instruction set
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "worker/kernels/bf16.h"
#include "worker/kernels/linear_int4.h"

// Highway 1.0 has no products of bytes. Other machines take plain loops.
#undef DEX_BYTE_PRODUCTS
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3
#define DEX_BYTE_PRODUCTS 1
#else
#define DEX_BYTE_PRODUCTS 0
#endif

HWY_BEFORE_NAMESPACE();
namespace dex::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if DEX_BYTE_PRODUCTS

using U8 = hn::ScalableTag<uint8_t>;
using U16 = hn::Repartition<uint16_t, U8>;
using I16 = hn::Repartition<int16_t, U8>;
using I32 = hn::Repartition<int32_t, U8>;
using F = hn::Repartition<float, U8>;
using Bytes = hn::Vec<U8>;
using V = hn::Vec<F>;
constexpr int kBytes = static_cast<int>(hn::MaxLanes(U8()));
constexpr int kOutputs = kBytes / 4;  // in a vector: 16, 8 or 4
constexpr int kParts = static_cast<int>(kInt4Outputs) / kOutputs;

// w[2i]·x[2i] + w[2i + 1]·x[2i + 1]: w without a sign, x with one.
HWY_INLINE hn::Vec<I16> pair_products(Bytes w, Bytes x) {
#if HWY_TARGET <= HWY_AVX3
  return hn::Vec<I16>{_mm512_maddubs_epi16(w.raw, x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return hn::Vec<I16>{_mm256_maddubs_epi16(w.raw, x.raw)};
#else
  return hn::Vec<I16>{_mm_maddubs_epi16(w.raw, x.raw)};
#endif
}
HWY_INLINE hn::Vec<I32> pair_sums(hn::Vec<I16> a) {
  const hn::Vec<I16> ones = hn::Set(I16(), 1);
#if HWY_TARGET <= HWY_AVX3
  return hn::Vec<I32>{_mm512_madd_epi16(a.raw, ones.raw)};
#elif HWY_TARGET == HWY_AVX2
  return hn::Vec<I32>{_mm256_madd_epi16(a.raw, ones.raw)};
#else
  return hn::Vec<I32>{_mm_madd_epi16(a.raw, ones.raw)};
#endif
}

// A group's sum: eight products of at most 2·15·128 stay below 2¹⁵.
struct InPairs {
  using Sum = hn::Vec<I16>;
  static HWY_INLINE Sum zero() { return hn::Zero(I16()); }
  static HWY_INLINE Sum add(Sum sum, Bytes w, Bytes x) { return hn::Add(sum, pair_products(w, x)); }
  static HWY_INLINE hn::Vec<I32> total(Sum sum) { return pair_sums(sum); }
};

#if HWY_TARGET <= HWY_AVX3
// VNNI. By its name, since no target of Highway 1.0 has this instruction, and some processors have
// it without what Highway calls AVX3_DL.
struct InFours {
  using Sum = hn::Vec<I32>;
  static HWY_INLINE Sum zero() { return hn::Zero(I32()); }
  static HWY_INLINE Sum add(Sum sum, Bytes w, Bytes x) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "v"(x.raw));
    return sum;
  }
  static HWY_INLINE hn::Vec<I32> total(Sum sum) { return sum; }
};
#endif

HWY_INLINE Bytes four(const int8_t* x) {  // the same four bytes everywhere
  int32_t word;
  std::memcpy(&word, x, sizeof(word));
  return hn::BitCast(U8(), hn::Set(I32(), word));
}
HWY_INLINE V widened(const uint16_t* p) {
  const hn::Repartition<uint32_t, F> u32;
  const hn::Rebind<uint16_t, decltype(u32)> u16;
  return hn::BitCast(F(), hn::ShiftLeft<16>(hn::PromoteTo(u32, hn::LoadU(u16, p))));
}

// R rows times one part of a block's outputs. Each row is summed in the same order, whatever R is.
template <class Dot, int R>
HWY_INLINE void part_sums(const Int8Group* HWY_RESTRICT x, int64_t groups,
                          const Int4Block* HWY_RESTRICT w, int part, bool ahead, V* result) {
  constexpr int64_t kAhead = 12;  // blocks: 3.8 kB
  const F d;
  const U8 d8;
  const Bytes fifteen = hn::Set(d8, uint8_t{15});
  V sum[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sum[r] = hn::Zero(d);
  for (int64_t g = 0; g < groups; ++g) {
    if (ahead) {
      const auto* at = reinterpret_cast<const char*>(w + g + kAhead);
      for (size_t line = 0; line < sizeof(Int4Block); line += 64) hwy::Prefetch(at + line);
    }
    typename Dot::Sum dot[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) dot[r] = Dot::zero();
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const Bytes both = hn::LoadU(d8, w[g].q[c] + part * kBytes);
      const Bytes low = hn::And(both, fifteen);
      const Bytes high =
          hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(U16(), both))), fifteen);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const int8_t* in = x[r * groups + g].q + 8 * c;
        dot[r] = Dot::add(dot[r], low, four(in));
        dot[r] = Dot::add(dot[r], high, four(in + 4));
      }
    }
    const V scale = widened(w[g].scale + part * kOutputs);
    const V minimum = widened(w[g].minimum + part * kOutputs);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Int8Group& in = x[r * groups + g];
      const V product = hn::ConvertTo(d, Dot::total(dot[r]));
      sum[r] = hn::MulAdd(product, hn::Mul(scale, hn::Set(d, in.scale)), sum[r]);
      sum[r] = hn::MulAdd(minimum, hn::Set(d, in.sum), sum[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) result[r] = sum[r];
}

// R rows times the outputs [from, to) of a block's 16.
template <class Dot, int R>
void rows_times_blocks(const Int8Group* x, int64_t groups, const Int4Block* w, bool ahead,
                       int64_t from, int64_t to, float* y, int64_t y_stride, Store store) {
  const F d;
  HWY_ALIGN float out[R * kInt4Outputs];
  for (int part = 0; part < kParts; ++part) {
    V sum[R];
    part_sums<Dot, R>(x, groups, w, part, ahead && part == 0, sum);
    for (int r = 0; r < R; ++r) hn::StoreU(sum[r], d, out + r * kInt4Outputs + part * kOutputs);
  }
  for (int r = 0; r < R; ++r) {
    for (int64_t n = from; n < to; ++n) {
      float& to_y = y[r * y_stride + n];
      to_y = store == Store::kAdd ? to_y + out[r * kInt4Outputs + n] : out[r * kInt4Outputs + n];
    }
  }
}

template <class Dot>
void linear(const Int8Group* x, int64_t rows, const WeightView& w, int64_t begin, int64_t end,
            float* y, int64_t y_stride, Store store) {
  constexpr int kMost = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
  const int64_t groups = int4_groups(w.columns);
  for (int64_t first = begin / kInt4Outputs * kInt4Outputs; first < end; first += kInt4Outputs) {
    const Int4Block* block = static_cast<const Int4Block*>(w.data) + first / kInt4Outputs * groups;
    const int64_t from = std::max<int64_t>(0, begin - first),
                  to = std::min<int64_t>(kInt4Outputs, end - first);
    // The first rows bring the weights into the first cache, the others find them there.
    for (int64_t r = 0; r < rows;) {
      const Int8Group* in = x + r * groups;
      float* out = y + r * y_stride + first;
      const int64_t left = rows - r;
      if (kMost == 8 && left >= 8) {
        rows_times_blocks<Dot, kMost>(in, groups, block, r == 0, from, to, out, y_stride, store);
        r += 8;
      } else if (left >= 4) {
        rows_times_blocks<Dot, 4>(in, groups, block, r == 0, from, to, out, y_stride, store);
        r += 4;
      } else if (left >= 2) {
        rows_times_blocks<Dot, 2>(in, groups, block, r == 0, from, to, out, y_stride, store);
        r += 2;
      } else {
        rows_times_blocks<Dot, 1>(in, groups, block, r == 0, from, to, out, y_stride, store);
        r += 1;
      }
    }
  }
}

void LinearInt4(const Int8Group* x, int64_t rows, const WeightView& w, int64_t begin, int64_t end,
                float* y, int64_t y_stride, Store store, ByteProducts products) {
#if HWY_TARGET <= HWY_AVX3
  static const bool vnni = __builtin_cpu_supports("avx512vnni") != 0;
  if (vnni && products == ByteProducts::kBest)
    return linear<InFours>(x, rows, w, begin, end, y, y_stride, store);
#endif
  linear<InPairs>(x, rows, w, begin, end, y, y_stride, store);
}

#else  // DEX_BYTE_PRODUCTS

void LinearInt4(const Int8Group* x, int64_t rows, const WeightView& w, int64_t begin, int64_t end,
                float* y, int64_t y_stride, Store store, ByteProducts) {
  const int64_t groups = int4_groups(w.columns);
  for (int64_t n = begin; n < end; ++n) {
    const Int4Block* blocks = static_cast<const Int4Block*>(w.data) + n / kInt4Outputs * groups;
    const int64_t at = n % kInt4Outputs;
    for (int64_t r = 0; r < rows; ++r) {
      float sum = 0;
      for (int64_t g = 0; g < groups; ++g) {
        const Int8Group& in = x[r * groups + g];
        int32_t dot = 0;
        for (int64_t k = 0; k < kInt4Group; ++k) {
          const uint8_t byte = blocks[g].q[k / 8][4 * at + k % 4];
          dot += (k % 8 < 4 ? byte & 15 : byte >> 4) * in.q[k];
        }
        sum += static_cast<float>(dot) * (from_bf16(blocks[g].scale[at]) * in.scale);
        sum += from_bf16(blocks[g].minimum[at]) * in.sum;
      }
      float& out = y[r * y_stride + n];
      out = store == Store::kAdd ? out + sum : sum;
    }
  }
}

#endif  // DEX_BYTE_PRODUCTS

void QuantizeActivations(const float* x, int64_t columns, Int8Group* groups) {
  // Lanes that divide a group, on any machine.
  const hn::CappedTag<float, kInt4Group / 2> d;
  const hn::RebindToSigned<decltype(d)> d32;
  const hn::Rebind<int8_t, decltype(d)> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t first = 0; first < columns; first += kInt4Group, ++groups) {
    HWY_ALIGN float padded[kInt4Group];
    const float* in = x + first;
    if (columns - first < kInt4Group) {
      std::fill(std::copy(in, x + columns, padded), padded + kInt4Group, 0.0F);
      in = padded;
    }
    auto most = hn::Zero(d), poison = hn::Zero(d);  // poison: 0, or NaN where x is not finite
    for (int64_t k = 0; k < kInt4Group; k += lanes) {
      const auto v = hn::LoadU(d, in + k);
      most = hn::Max(most, hn::Abs(v));
      poison = hn::MulAdd(v, hn::Zero(d), poison);
    }
    const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
    const float inverse = largest >= 1e-30F ? 127.0F / largest : 0.0F;
    auto total = hn::Zero(d32);
    for (int64_t k = 0; k < kInt4Group; k += lanes) {
      const auto q = hn::NearestInt(hn::Mul(hn::LoadU(d, in + k), hn::Set(d, inverse)));
      total = hn::Add(total, q);
      hn::StoreU(hn::DemoteTo(d8, q), d8, groups->q + k);
    }
    groups->scale = inverse == 0 ? 0.0F : largest / 127.0F;
    groups->scale += hn::GetLane(hn::SumOfLanes(d, poison));
    groups->sum = groups->scale * static_cast<float>(hn::GetLane(hn::SumOfLanes(d32, total)));
  }
}

}  // namespace dex::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex::kernels {

HWY_EXPORT(LinearInt4);
HWY_EXPORT(QuantizeActivations);

void linear_int4(const Int8Group* x, int64_t rows, const WeightView& w, int64_t begin, int64_t end,
                 float* y, int64_t y_stride, Store store, ByteProducts products) {
  HWY_DYNAMIC_DISPATCH(LinearInt4)(x, rows, w, begin, end, y, y_stride, store, products);
}

void quantize_activations(const float* x, int64_t columns, Int8Group* groups) {
  HWY_DYNAMIC_DISPATCH(QuantizeActivations)(x, columns, groups);
}

}  // namespace dex::kernels
#endif
