#include <algorithm>
#include <cmath>
#include <limits>

#include "worker/kernels/attention_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "worker/kernels/attention_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

#include "worker/kernels/small_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dex::kernels::rows::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using dex::kernels::HWY_NAMESPACE::Product;
using dex::kernels::HWY_NAMESPACE::Strided;

// Scores are kept as [keys][queries], so that a vector holds one key's for neighbouring queries:
// keys and values are read as they lie, softmax needs no sums across lanes, and only the block's
// queries are turned.
constexpr int64_t kB = kQueryBlock;
constexpr int64_t kStep = 6;  // keys or queries that share where the diagonal begins
// Full vectors of the block: every vector length divides it.
template <class T>
using Block = hn::CappedTag<T, 16>;

// Rows of the block, the keys of one span, and where the two meet.
template <class T>
struct Span {
  const AttentionHead<T>& head;
  int64_t begin, end;   // queries
  int64_t first, last;  // keys
  [[nodiscard]] int64_t keys() const { return last - first; }
  // First query of the block, counted from `begin`, that sees key first + j; ≤ 0: all do.
  [[nodiscard]] int64_t from(int64_t j) const { return first + j - begin; }
  // First one that no longer does.
  [[nodiscard]] int64_t until(int64_t j) const {
    return head.window == 0 ? kB : std::min(kB, first + j - begin + head.window);
  }
  // Keys that query begin + i and its kStep − 1 successors may see, counted from `first`.
  [[nodiscard]] int64_t seen(int64_t i) const {
    return std::clamp<int64_t>(begin + std::min(i + kStep, end - begin) - first, 0, keys());
  }
};

// to[c][i] = factor·x[i][c] for rows below `rows`, 0 for the block's others.
template <class T>
void Turn(const T* x, int64_t stride, int64_t rows, int64_t width, T factor, T* to) {
  std::fill_n(to, width * kB, T(0));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < width; ++c) to[c * kB + i] = factor * x[i * stride + c];
  }
}

// out[j][i] = Σ_c rows[first + j][c]·turned[c][i]; lanes whole vectors above the diagonal stay as
// they are.
template <class T>
void KeyProducts(const Span<T>& span, const T* rows, int64_t stride, int64_t width, const T* turned,
                 T* out) {
  const Block<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = std::clamp<int64_t>(span.begin - span.first, 0, span.keys());
  const Strided<T> a{rows + span.first * stride, stride, 1};
  Product(d, whole, kB, width, a, turned, kB, out, kB, false);
  for (int64_t j = whole; j < span.keys(); j += kStep) {
    const int64_t n = std::max<int64_t>(0, span.from(j)) / lanes * lanes;
    Product(d, std::min(kStep, span.keys() - j), kB - n, width, a.at(j, 0), turned + n, kB,
            out + j * kB + n, kB, false);
  }
}

// Calls hide(first lane, last lane) of row j for what the block's queries don't see of it.
template <class T, class Hide>
void ForHidden(const Span<T>& span, const Hide& hide) {
  // Rows of the diagonal are the last ones, those that slide out of the window the first ones.
  for (int64_t j = std::max<int64_t>(0, span.begin - span.first); j < span.keys(); ++j)
    if (span.from(j) > 0) hide(j, int64_t{0}, std::min(kB, span.from(j)));
  for (int64_t j = 0; j < span.keys() && span.until(j) < kB; ++j)
    hide(j, std::max<int64_t>(0, span.until(j)), kB);
}

// to[i][·] (+)= Σ_j weights[j][i]·rows[first + j][·]
template <class T>
void QueryProducts(const Span<T>& span, const T* weights, const T* rows, int64_t stride,
                   int64_t width, T* to, int64_t to_stride, bool add) {
  const Block<T> d;
  for (int64_t i = 0; i < span.end - span.begin; i += kStep) {
    const Strided<T> a{weights + i, 1, kB};
    Product(d, std::min(kStep, span.end - span.begin - i), width, span.seen(i), a,
            rows + span.first * stride, stride, to + i * to_stride, to_stride, add);
  }
}

// to[first + j][·] += Σ_i weights[j][i]·x[i][·], x at the block's first row
template <class T>
void AddToKeys(const Span<T>& span, const T* weights, const T* x, int64_t stride, int64_t width,
               T* to, int64_t to_stride) {
  const Block<T> d;
  const int64_t rows = span.end - span.begin;
  const int64_t whole = std::clamp<int64_t>(span.begin - span.first, 0, span.keys());
  const Strided<T> a{weights, kB, 1};
  to += span.first * to_stride;
  Product(d, whole, width, rows, a, x, stride, to, to_stride, true);
  for (int64_t j = whole; j < span.keys(); j += kStep) {
    const int64_t i = std::max<int64_t>(0, span.from(j));
    if (i >= rows) break;
    Product(d, std::min(kStep, span.keys() - j), width, rows - i, a.at(j, i), x + i * stride,
            stride, to + j * to_stride, to_stride, true);
  }
}

// Largest and sum so far, of each query.
template <class T>
struct Running {
  T largest[kB], sum[kB];
};

// Scores of a span become exp(score − largest); `factor` [kB] is what earlier sums shrink by.
template <class T>
void Soften(int64_t keys, T* scores, Running<T>& running, T* factor) {
  const Block<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto none = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (int64_t n = 0; n < kB; n += lanes) {
    auto largest = hn::LoadU(d, running.largest + n);
    const auto before = largest;
    for (int64_t j = 0; j < keys; ++j)
      largest = hn::Max(largest, hn::LoadU(d, scores + j * kB + n));
    // A weight of what is hidden is 0, whatever Exp makes of −Inf and of −Inf − −Inf.
    const auto weight = [&](auto score) {
      return hn::IfThenElseZero(hn::Ne(score, none), hn::Exp(d, hn::Sub(score, largest)));
    };
    const auto shrink = weight(before);
    auto sum = hn::Mul(shrink, hn::LoadU(d, running.sum + n));
    for (int64_t j = 0; j < keys; ++j) {
      const auto w = weight(hn::LoadU(d, scores + j * kB + n));
      hn::StoreU(w, d, scores + j * kB + n);
      sum = hn::Add(sum, w);
    }
    hn::StoreU(shrink, d, factor + n);
    hn::StoreU(largest, d, running.largest + n);
    hn::StoreU(sum, d, running.sum + n);
  }
}

template <class T>
void Scale(T* row, int64_t width, T factor) {
  for (int64_t c = 0; c < width; ++c) row[c] *= factor;
}

// The spans of keys that the block sees, first to last.
template <class T, class Body>
void ForSpans(const AttentionHead<T>& head, int64_t begin, int64_t end, const Body& body) {
  const int64_t from = head.window == 0 ? 0 : std::max<int64_t>(0, begin - head.window + 1);
  for (int64_t first = from; first < end; first += kKeySpan)
    body(Span<T>{head, begin, end, first, std::min(end, first + kKeySpan)}, first == from);
}

template <class T>
void Forward(const AttentionHead<T>& head, int64_t begin, int64_t end, T* o, int64_t o_stride,
             T* lse, T* scratch) {
  T* turned = scratch;                   // [d][kB]
  T* scores = turned + head.width * kB;  // [kKeySpan][kB]
  const int64_t rows = end - begin;
  Turn(head.q + begin * head.q_stride, head.q_stride, rows, head.width, head.scale, turned);
  Running<T> running;
  std::fill_n(running.largest, kB, -std::numeric_limits<T>::infinity());
  std::fill_n(running.sum, kB, T(0));
  ForSpans(head, begin, end, [&](const Span<T>& span, bool is_first) {
    KeyProducts(span, head.k, head.k_stride, head.width, turned, scores);
    ForHidden(span, [&](int64_t j, int64_t a, int64_t b) {
      std::fill(scores + j * kB + a, scores + j * kB + b, -std::numeric_limits<T>::infinity());
    });
    T factor[kB];
    Soften(span.keys(), scores, running, factor);
    for (int64_t i = 0; i < rows && !is_first; ++i)
      Scale(o + i * o_stride, head.value_width, factor[i]);
    QueryProducts(span, scores, head.v, head.v_stride, head.value_width, o, o_stride, !is_first);
  });
  for (int64_t i = 0; i < rows; ++i) {
    Scale(o + i * o_stride, head.value_width, T(1) / running.sum[i]);
    lse[i] = running.largest[i] + std::log(running.sum[i]);
  }
}

// scores → weights exp(score − lse), and products dO·v → gradients of the scores, times scale.
template <class T>
void ScoreGradients(int64_t keys, const T* lse, const T* dot, T scale, T* scores, T* d_scores) {
  const Block<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto none = hn::Set(d, -std::numeric_limits<T>::infinity());
  const auto scale_v = hn::Set(d, scale);
  for (int64_t n = 0; n < kB; n += lanes) {
    const auto lse_v = hn::LoadU(d, lse + n), dot_v = hn::LoadU(d, dot + n);
    for (int64_t at = n; at < keys * kB; at += kB) {
      const auto score = hn::LoadU(d, scores + at);
      const auto w = hn::IfThenElseZero(hn::Ne(score, none), hn::Exp(d, hn::Sub(score, lse_v)));
      const auto back = hn::Mul(scale_v, hn::Sub(hn::LoadU(d, d_scores + at), dot_v));
      hn::StoreU(w, d, scores + at);
      hn::StoreU(hn::Mul(w, back), d, d_scores + at);
    }
  }
}

template <class T>
void Backward(const AttentionHead<T>& head, int64_t begin, int64_t end,
              const AttentionGradient<T>& g, T* scratch) {
  T* turned = scratch;                              // q [d][kB]
  T* turned_back = turned + head.width * kB;        // dO [d_v][kB]
  T* scores = turned_back + head.value_width * kB;  // [kKeySpan][kB], both
  T* d_scores = scores + kKeySpan * kB;
  const int64_t rows = end - begin;
  const T* q = head.q + begin * head.q_stride;
  Turn(q, head.q_stride, rows, head.width, head.scale, turned);
  Turn(g.d_o, g.o_stride, rows, head.value_width, T(1), turned_back);
  T lse[kB] = {}, dot[kB] = {};  // lanes past the rows: weights of 1 against gradients of 0
  for (int64_t i = 0; i < rows; ++i) {
    lse[i] = g.lse[i];
    const T *o = g.o + i * g.o_stride, *d_o = g.d_o + i * g.o_stride;
    for (int64_t c = 0; c < head.value_width; ++c) dot[i] += o[c] * d_o[c];
  }
  ForSpans(head, begin, end, [&](const Span<T>& span, bool is_first) {
    KeyProducts(span, head.k, head.k_stride, head.width, turned, scores);
    KeyProducts(span, head.v, head.v_stride, head.value_width, turned_back, d_scores);
    ForHidden(span, [&](int64_t j, int64_t a, int64_t b) {
      std::fill(scores + j * kB + a, scores + j * kB + b, -std::numeric_limits<T>::infinity());
      std::fill(d_scores + j * kB + a, d_scores + j * kB + b, T(0));
    });
    ScoreGradients(span.keys(), lse, dot, head.scale, scores, d_scores);
    QueryProducts(span, d_scores, head.k, head.k_stride, head.width, g.dq, g.dq_stride, !is_first);
    AddToKeys(span, d_scores, q, head.q_stride, head.width, g.dk, g.dk_stride);
    AddToKeys(span, scores, g.d_o, g.o_stride, head.value_width, g.dv, g.dv_stride);
  });
}

void ForwardF32(const AttentionHead<float>& head, int64_t begin, int64_t end, float* o,
                int64_t o_stride, float* lse, float* scratch) {
  Forward(head, begin, end, o, o_stride, lse, scratch);
}
void ForwardF64(const AttentionHead<double>& head, int64_t begin, int64_t end, double* o,
                int64_t o_stride, double* lse, double* scratch) {
  Forward(head, begin, end, o, o_stride, lse, scratch);
}
void BackwardF32(const AttentionHead<float>& head, int64_t begin, int64_t end,
                 const AttentionGradient<float>& gradient, float* scratch) {
  Backward(head, begin, end, gradient, scratch);
}
void BackwardF64(const AttentionHead<double>& head, int64_t begin, int64_t end,
                 const AttentionGradient<double>& gradient, double* scratch) {
  Backward(head, begin, end, gradient, scratch);
}

}  // namespace dex::kernels::rows::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dex::kernels::rows {
HWY_EXPORT(ForwardF32);
HWY_EXPORT(ForwardF64);
HWY_EXPORT(BackwardF32);
HWY_EXPORT(BackwardF64);

int64_t attention_scratch(int64_t width, int64_t value_width) {
  return (width + value_width + 2 * kKeySpan) * kQueryBlock;
}

template <>
void attention(const AttentionHead<float>& head, int64_t begin, int64_t end, float* o,
               int64_t o_stride, float* lse, float* scratch) {
  HWY_DYNAMIC_DISPATCH(ForwardF32)(head, begin, end, o, o_stride, lse, scratch);
}
template <>
void attention(const AttentionHead<double>& head, int64_t begin, int64_t end, double* o,
               int64_t o_stride, double* lse, double* scratch) {
  HWY_DYNAMIC_DISPATCH(ForwardF64)(head, begin, end, o, o_stride, lse, scratch);
}
template <>
void attention_backward(const AttentionHead<float>& head, int64_t begin, int64_t end,
                        const AttentionGradient<float>& gradient, float* scratch) {
  HWY_DYNAMIC_DISPATCH(BackwardF32)(head, begin, end, gradient, scratch);
}
template <>
void attention_backward(const AttentionHead<double>& head, int64_t begin, int64_t end,
                        const AttentionGradient<double>& gradient, double* scratch) {
  HWY_DYNAMIC_DISPATCH(BackwardF64)(head, begin, end, gradient, scratch);
}
}  // namespace dex::kernels::rows
#endif
