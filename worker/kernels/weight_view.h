#pragma once

#include <cstdint>

namespace dex::kernels {

// How numbers are stored. Everything is computed in fp32 (performance.md §0, rule 3).
enum class Number { kF32, kBf16 };

[[nodiscard]] inline int64_t bytes_of(Number number) {
  return number == Number::kF32 ? 4 : 2;
}

// A Linear weight as it lies in memory, often in a mapped file: [rows, columns], row by row,
// aligned to its number. Borrows the bytes.
struct WeightView {
  const void* data = nullptr;
  Number number = Number::kF32;
  int64_t rows = 0;     // outputs
  int64_t columns = 0;  // inputs
};

// A linear without a bias. One object, since jobs hold pointers to their views.
inline constexpr WeightView kNoBias;

}  // namespace dex::kernels
