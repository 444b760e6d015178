#pragma once

#include <cstdint>

namespace dex::kernels {

// How numbers are stored. Everything is summed in fp32 (performance.md §0, rule 3); products with
// kInt4 are of whole numbers within a group (linear_int4.h).
enum class Number { kF32, kBf16, kInt8, kInt4 };

// Not of kInt4, of which no number has bytes of its own.
[[nodiscard]] inline int64_t bytes_of(Number number) {
  return number == Number::kF32 ? 4 : number == Number::kBf16 ? 2 : 1;
}

// A Linear weight as it lies in memory, often in a mapped file: [rows, columns], row by row,
// aligned to its number, or in panels; of kInt4 the blocks of linear_int4.h. Borrows the bytes.
struct WeightView {
  const void* data = nullptr;
  Number number = Number::kF32;
  int64_t rows = 0;     // outputs
  int64_t columns = 0;  // inputs
  // kInt8: [rows], w[n, k] = scales[n]·q[n, k] (quantize.h). Borrowed too.
  const float* scales = nullptr;
  bool panels = false;  // in the order of linear_panels.h instead of row by row
};

// A linear without a bias. One object, since jobs hold pointers to their views.
inline constexpr WeightView kNoBias;

}  // namespace dex::kernels
