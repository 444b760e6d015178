#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <random>
#include <vector>

namespace dex::kernels {

// Runs `check` once for each instruction set that was compiled and that this machine has.
template <typename Check>
void for_each_target(Check&& check) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    check(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

inline std::vector<float> random_floats(int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values)
    v = static_cast<float>(static_cast<int>(generator() % 2001) - 1000) / 1000.0F;
  return values;
}

// The upper halves, as bf16 is stored.
inline std::vector<uint16_t> upper_halves(const std::vector<float>& values) {
  std::vector<uint16_t> halves(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits;
    __builtin_memcpy(&bits, &values[i], sizeof(bits));
    halves[i] = static_cast<uint16_t>(bits >> 16);
  }
  return halves;
}

}  // namespace dex::kernels
