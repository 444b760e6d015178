#pragma once

#include <bit>
#include <cstdint>

namespace dex::kernels {

// bf16 is the upper half of an fp32 number. Rounded to the nearest, ties to even; NaN stays NaN.
[[nodiscard]] inline uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>(bits >> 16 | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

[[nodiscard]] inline float from_bf16(uint16_t value) {
  return std::bit_cast<float>(uint32_t{value} << 16);
}

}  // namespace dex::kernels
