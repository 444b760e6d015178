#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/kernels/paged_attention_cpu.cc"
#include <hwy/foreach_target.h>  // includes this file once an instruction set
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>  // must follow

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "worker/kernels/paged_attention.h"

HWY_BEFORE_NAMESPACE();
namespace dex::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, so that a vector never spans two blocks.
using F = hn::CappedTag<float, kBlockTokens>;
using V = hn::Vec<F>;
constexpr int64_t kSpan =
    64;  // tokens a pass: four blocks between two corrections of the running sums
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F()));
constexpr int kVectors = kBlockTokens / kLanes;  // in a block's row of keys

HWY_INLINE V load(F d, const float* p) {
  return hn::LoadU(d, p);
}
HWY_INLINE V load(F d, const uint16_t* p) {
  const hn::Repartition<uint32_t, F> u32;
  const hn::Rebind<uint16_t, decltype(u32)> u16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(u32, hn::LoadU(u16, p))));
}

// Scores of Q queries against one block: scores[q][0..16) = scale·q·K. Each vector of keys is read
// once for all Q.
template <int Q, class K>
HWY_INLINE void block_scores(const float* const* queries, const K* keys, int64_t dim, float scale,
                             float* scores) {
  const F d;
  V sum[Q][kVectors];
#pragma GCC unroll 16
  for (int q = 0; q < Q; ++q) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) sum[q][v] = hn::Zero(d);
  }
  for (int64_t i = 0; i < dim; ++i) {
    V key[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) key[v] = load(d, keys + i * kBlockTokens + v * kLanes);
#pragma GCC unroll 16
    for (int q = 0; q < Q; ++q) {
      const V value = hn::Set(d, queries[q][i]);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sum[q][v] = hn::MulAdd(value, key[v], sum[q][v]);
    }
  }
#pragma GCC unroll 16
  for (int q = 0; q < Q; ++q) {
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(hn::Mul(sum[q][v], hn::Set(d, scale)), d, scores + q * kSpan + v * kLanes);
    }
  }
}

// sums[q][0..32) += Σ_t p[q][t]·V[t][0..32) over `tokens` tokens of one block (or [0..16) with
// kWidth 16).
template <int Q, int kWidth, class K>
HWY_INLINE void block_values(const float* p, const K* values, int64_t padded, int64_t tokens,
                             float* sums) {
  const F d;
  constexpr int N = kWidth / kLanes;
  V sum[Q][N];
#pragma GCC unroll 16
  for (int q = 0; q < Q; ++q) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) sum[q][n] = hn::LoadU(d, sums + q * padded + n * kLanes);
  }
  for (int64_t t = 0; t < tokens; ++t) {
    V value[N];
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) value[n] = load(d, values + t * padded + n * kLanes);
#pragma GCC unroll 16
    for (int q = 0; q < Q; ++q) {
      const V weight = hn::Set(d, p[q * kSpan + t]);
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) sum[q][n] = hn::MulAdd(weight, value[n], sum[q][n]);
    }
  }
#pragma GCC unroll 16
  for (int q = 0; q < Q; ++q) {
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) hn::StoreU(sum[q][n], d, sums + q * padded + n * kLanes);
  }
}

// Scores → weights of one query and one span: masks all but tokens [hidden, visible), raises the
// running maximum, corrects what was summed so far.
HWY_INLINE void soften(float* scores, int64_t hidden, int64_t visible, float* maximum,
                       double* total, float* sums, int64_t padded) {
  const F d;
  const float none = -std::numeric_limits<float>::infinity();
  for (int64_t t = 0; t < std::min(hidden, kSpan); ++t) scores[t] = none;
  for (int64_t t = std::max<int64_t>(0, visible); t < kSpan; ++t) scores[t] = none;
  if (visible <= std::max<int64_t>(0, hidden)) {
    std::fill_n(scores, kSpan, 0.0F);
    return;
  }
  V most = hn::Set(d, none);
  for (int64_t t = 0; t < kSpan; t += kLanes) most = hn::Max(most, hn::LoadU(d, scores + t));
  const float high = std::max(*maximum, hn::GetLane(hn::MaxOfLanes(d, most)));
  V sum = hn::Zero(d);
  for (int64_t t = 0; t < kSpan; t += kLanes) {
    // Masked tokens weigh exactly 0, whatever Exp makes of −Inf.
    const V score = hn::LoadU(d, scores + t);
    const V weight = hn::IfThenElseZero(hn::Gt(score, hn::Set(d, none)),
                                        hn::Exp(d, hn::Sub(score, hn::Set(d, high))));
    hn::StoreU(weight, d, scores + t);
    sum = hn::Add(sum, weight);
  }
  const float now = hn::GetLane(hn::SumOfLanes(d, sum));
  if (*maximum == none) {
    *total = now;
  } else {
    const float keep = hn::GetLane(hn::Exp(d, hn::Set(d, *maximum - high)));
    *total = *total * keep + now;
    for (int64_t i = 0; i < padded; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, sums + i), hn::Set(d, keep)), d, sums + i);
    }
  }
  *maximum = high;
}

// The largest |score| of tokens [hidden, visible) of a span. Plain: only who measures comes here.
inline void note_largest(const float* scores, int64_t hidden, int64_t visible, float* largest) {
  for (int64_t t = std::max<int64_t>(0, hidden); t < visible; ++t)
    *largest = std::max(*largest, std::abs(scores[t]));
}

template <class K>
void attend_as(const AttentionTile& tile, AttentionScratch& scratch) {
  const KvLayout& layout = *tile.layout;
  const auto count = static_cast<int64_t>(tile.queries.size());
  const int64_t dim = layout.head_dim, padded = layout.padded_dim();
  const int64_t keys_at = tile.keys_at(), values_at = tile.values_at();
  float* scores = scratch.scores();
  float* sums = scratch.sums();
  float maximum[kMostQueries];
  double total[kMostQueries] = {};
  std::fill_n(maximum, count, -std::numeric_limits<float>::infinity());
  std::fill_n(sums, count * padded, 0.0F);
  const int64_t most = *std::max_element(tile.visible.begin(), tile.visible.end());
  const int64_t unseen =
      tile.hidden.empty() ? 0 : *std::min_element(tile.hidden.begin(), tile.hidden.end());
  constexpr int Q = 6;  // 12 sums and 2 keys in 16 registers; AVX-512 needs only half of that

  // Spans lie on one grid, whoever shares the tile: the same sums, rounded the same.
  for (int64_t first = unseen / kSpan * kSpan; first < most; first += kSpan) {
    const int64_t here = std::min(kSpan, most - first);
    for (int64_t t = 0; t < here; t += kBlockTokens) {
      const K* keys = static_cast<const K*>(tile.block(first + t)) + keys_at;
      int64_t q = 0;
      for (; q + Q <= count; q += Q) {
        block_scores<Q>(tile.queries.data() + q, keys, dim, tile.scale, scores + q * kSpan + t);
      }
      for (; q + 3 <= count; q += 3) {
        block_scores<3>(tile.queries.data() + q, keys, dim, tile.scale, scores + q * kSpan + t);
      }
      for (; q < count; ++q) {
        block_scores<1>(tile.queries.data() + q, keys, dim, tile.scale, scores + q * kSpan + t);
      }
    }
    for (int64_t q = 0; q < count; ++q) {
      const int64_t visible = std::min(tile.visible[q] - first, here);
      const int64_t hidden = tile.hidden.empty() ? 0 : tile.hidden[q] - first;
      if (tile.largest != nullptr) note_largest(scores + q * kSpan, hidden, visible, tile.largest);
      soften(scores + q * kSpan, hidden, visible, &maximum[q], &total[q], sums + q * padded,
             padded);
    }
    for (int64_t t = 0; t < here; t += kBlockTokens) {
      const K* values = static_cast<const K*>(tile.block(first + t)) + values_at;
      const int64_t tokens = std::min(kBlockTokens, here - t);
      int64_t i = 0;
      const auto share = [&](auto width) {
        for (; i + width <= padded; i += width) {
          int64_t q = 0;
          for (; q + 3 <= count; q += 3) {
            block_values<3, width>(scores + q * kSpan + t, values + i, padded, tokens,
                                   sums + q * padded + i);
          }
          for (; q < count; ++q) {
            block_values<1, width>(scores + q * kSpan + t, values + i, padded, tokens,
                                   sums + q * padded + i);
          }
        }
      };
      if (HWY_TARGET <= HWY_AVX3) share(std::integral_constant<int, 64>());
      if (kLanes >= 8) share(std::integral_constant<int, 32>());
      share(std::integral_constant<int, 16>());
    }
  }
  for (int64_t q = 0; q < count; ++q) {
    const auto factor = static_cast<float>(1.0 / total[q]);
    for (int64_t i = 0; i < dim; ++i) tile.outputs[q][i] = sums[q * padded + i] * factor;
  }
}

void Attend(const AttentionTile& tile, AttentionScratch& scratch) {
  if (tile.layout->number == Number::kBf16) {
    attend_as<uint16_t>(tile, scratch);
  } else {
    attend_as<float>(tile, scratch);
  }
}

}  // namespace dex::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex::kernels {

HWY_EXPORT(Attend);

void attend(const AttentionTile& tile, AttentionScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(Attend)(tile, scratch);
}

}  // namespace dex::kernels
#endif
