#pragma once

#include <cstdint>

// The loops under causal_attention.h: one head, one block of queries, plain pointers, vectorised by
// Highway with run-time dispatch. T is float or double.
namespace dex::kernels::rows {

// Queries that are worked on together: eight rows of products' tiles, three AVX-512 vectors.
inline constexpr int64_t kQueryBlock = 48;
// Keys between two corrections of the running sums; bounds the scratch, whatever the document.
inline constexpr int64_t kKeySpan = 512;

// One query head of one document and what it reads. Pointers are to row 0 of the document, strides
// in elements from row to row; a row's own elements are adjacent.
template <class T>
struct AttentionHead {
  const T *q, *k, *v;
  int64_t q_stride, k_stride, v_stride;
  int64_t width, value_width;  // d of q and k; of v
  int64_t window;              // row i sees rows max(0, i − window + 1) … i; 0: all up to i
  T scale;                     // of q·k
};

// Elements of scratch for either function, a thread.
[[nodiscard]] int64_t attention_scratch(int64_t width, int64_t value_width);

// Rows [begin, end), at most kQueryBlock of them: o (its row `begin`, strided) and lse[0 … end −
// begin), the log of the sum of exp(scale·q·k).
template <class T>
void attention(const AttentionHead<T>& head, int64_t begin, int64_t end, T* o, int64_t o_stride,
               T* lse, T* scratch);

// What rows [begin, end) give back: dq is set; to dk and dv, which like k and v begin with row 0
// of the document, it is added. o, d_o and dq are at row `begin`; o and d_o share o_stride.
template <class T>
struct AttentionGradient {
  const T *o, *d_o, *lse;
  int64_t o_stride;
  T *dq, *dk, *dv;
  int64_t dq_stride, dk_stride, dv_stride;
};
template <class T>
void attention_backward(const AttentionHead<T>& head, int64_t begin, int64_t end,
                        const AttentionGradient<T>& gradient, T* scratch);

}  // namespace dex::kernels::rows
