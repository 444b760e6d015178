#pragma once

#include <cstdint>

// The loops under this room's ops: plain pointers, row by row, vectorised by Highway with run-time
// dispatch; nothing here knows a tensor. T is float or double. Rows are contiguous.
// Single-threaded: callers split the rows.
namespace dex::kernels::rows {

// y = x·rstd·weight, rstd[row] = 1/sqrt(mean(x²) + eps).
template <class T>
void rms_norm(const T* x, const T* weight, T* y, T* rstd, int64_t rows, int64_t width, double eps);
// dx = rstd·(w∘dy) − x·rstd³/width·⟨w∘dy, x⟩
template <class T>
void rms_norm_backward(const T* dy, const T* x, const T* weight, const T* rstd, T* dx, int64_t rows,
                       int64_t width);

// y = gate·σ(gate)·up over `count` elements; its gradients.
template <class T>
void swiglu(const T* gate, const T* up, T* y, int64_t count);
template <class T>
void swiglu_backward(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t count);

// Rotates x [rows, heads, 2·half] by cos, sin [rows, half]; `direction` −1 rotates back.
template <class T>
void rope(const T* x, const T* cos, const T* sin, T* y, int64_t rows, int64_t heads, int64_t half,
          double direction);

// Softmax loss of one row of `width` logits: returns log Σ exp(z) − z[target]. With `scale` ≠ 0 the
// row becomes scale·(softmax(z) − onehot(target)) in place, else it keeps no meaning.
template <class T>
T softmax_loss(T* logits, int64_t width, int64_t target, T scale);

}  // namespace dex::kernels::rows
