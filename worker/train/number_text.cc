#include "worker/train/number_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace dex::train {

std::string number_text(double value) {
  constexpr double kSmallest = 1e-3, kLargest = 1e6;  // in plain digits
  if (std::isnan(value)) return "NaN";
  char text[32];
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size < kSmallest || size >= kLargest) {
    std::snprintf(text, sizeof text, "%.1e", value);
    return text;
  }
  // Four decimals below ten (losses), one fewer for each digit before the point.
  const int decimals = std::clamp(4 - static_cast<int>(std::floor(std::log10(size))), 0, 4);
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  std::string out = text;
  if (decimals == 0) return out;
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out;
}

}  // namespace dex::train
