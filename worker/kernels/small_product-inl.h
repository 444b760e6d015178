// A product of small matrices that lie in the caches, for the kernels that Highway compiles anew
// for each instruction set. Included by *_cpu.cc after highway.h, once a target.
#if defined(DEX_SMALL_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef DEX_SMALL_PRODUCT_INL_H_
#undef DEX_SMALL_PRODUCT_INL_H_
#else
#define DEX_SMALL_PRODUCT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace dex::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Element (i, k) at data[i·row + k·column]: so a transpose is two strides changed over.
template <class T>
struct Strided {
  const T* data;
  int64_t row, column;
  [[nodiscard]] Strided at(int64_t i, int64_t k) const {
    return {data + i * row + k * column, row, column};
  }
};

// A tile of 6 rows and 4 vectors (32 registers) or 2 (16) keeps all its sums in registers, and
// reads far less than it multiplies.
inline constexpr int kTileRows = 6, kTileRest = 2;
inline constexpr int kTileVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// c[M][kVectors·lanes] (+)= Σ_k a(·, k)·b[k][·]; `count` < lanes: the only vector has so many
// columns.
template <int M, int kVectors, bool kPart, class D, class T = hn::TFromD<D>>
HWY_INLINE void ProductTile(D d, Strided<T> a, const T* HWY_RESTRICT b, int64_t b_stride,
                            int64_t depth, T* HWY_RESTRICT c, int64_t c_stride, bool add,
                            size_t count) {
  using V = hn::Vec<D>;
  const size_t lanes = hn::Lanes(d);
  const auto load = [&](const T* p) {
    if (!kPart) return hn::LoadU(d, p);
    T whole[HWY_MAX_BYTES / sizeof(T)] = {};
    std::copy_n(p, count, whole);
    return hn::LoadU(d, whole);
  };
  const auto store = [&](V v, T* p) {
    if (!kPart) return hn::StoreU(v, d, p);
    T whole[HWY_MAX_BYTES / sizeof(T)];
    hn::StoreU(v, d, whole);
    std::copy_n(whole, count, p);
  };
  V sum[M][kVectors];
  HWY_UNROLL(8)
  for (int m = 0; m < M; ++m) {
    HWY_UNROLL(4)
    for (int n = 0; n < kVectors; ++n)
      sum[m][n] = add ? load(c + m * c_stride + n * lanes) : hn::Zero(d);
  }
  for (int64_t k = 0; k < depth; ++k, b += b_stride, a.data += a.column) {
    V right[kVectors];
    HWY_UNROLL(4)
    for (int n = 0; n < kVectors; ++n) right[n] = load(b + n * lanes);
    HWY_UNROLL(8)
    for (int m = 0; m < M; ++m) {
      const V left = hn::Set(d, a.data[m * a.row]);
      HWY_UNROLL(4)
      for (int n = 0; n < kVectors; ++n) sum[m][n] = hn::MulAdd(left, right[n], sum[m][n]);
    }
  }
  HWY_UNROLL(8)
  for (int m = 0; m < M; ++m) {
    HWY_UNROLL(4)
    for (int n = 0; n < kVectors; ++n) {
      store(sum[m][n], c + m * c_stride + n * lanes);
    }
  }
}

// The columns of one strip, all rows.
template <int kVectors, bool kPart, class D, class T = hn::TFromD<D>>
HWY_INLINE void ProductStrip(D d, int64_t rows, Strided<T> a, const T* b, int64_t b_stride,
                             int64_t depth, T* c, int64_t c_stride, bool add, size_t count) {
  int64_t i = 0;
  for (; i + kTileRows <= rows; i += kTileRows)
    ProductTile<kTileRows, kVectors, kPart>(d, a.at(i, 0), b, b_stride, depth, c + i * c_stride,
                                            c_stride, add, count);
  for (; i + kTileRest <= rows; i += kTileRest)
    ProductTile<kTileRest, kVectors, kPart>(d, a.at(i, 0), b, b_stride, depth, c + i * c_stride,
                                            c_stride, add, count);
  if (i < rows)
    ProductTile<1, kVectors, kPart>(d, a.at(i, 0), b, b_stride, depth, c + i * c_stride, c_stride,
                                    add, count);
}

// c [rows, columns] = or += a [rows, depth] · b [depth, columns].
template <class D, class T = hn::TFromD<D>>
HWY_NOINLINE void Product(D d, int64_t rows, int64_t columns, int64_t depth, Strided<T> a,
                          const T* b, int64_t b_stride, T* c, int64_t c_stride, bool add) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t n = 0;
  for (; n + kTileVectors * lanes <= columns; n += kTileVectors * lanes)
    ProductStrip<kTileVectors, false>(d, rows, a, b + n, b_stride, depth, c + n, c_stride, add, 0);
  if (kTileVectors > 3 && n + 3 * lanes <= columns) {
    ProductStrip<3, false>(d, rows, a, b + n, b_stride, depth, c + n, c_stride, add, 0);
    n += 3 * lanes;
  }
  if (kTileVectors > 2 && n + 2 * lanes <= columns) {
    ProductStrip<2, false>(d, rows, a, b + n, b_stride, depth, c + n, c_stride, add, 0);
    n += 2 * lanes;
  }
  for (; n + lanes <= columns; n += lanes)
    ProductStrip<1, false>(d, rows, a, b + n, b_stride, depth, c + n, c_stride, add, 0);
  if (n < columns) {
    ProductStrip<1, true>(d, rows, a, b + n, b_stride, depth, c + n, c_stride, add,
                          static_cast<size_t>(columns - n));
  }
}

}  // namespace dex::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per target
