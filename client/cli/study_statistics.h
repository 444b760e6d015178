#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace dex::cli {

// A mean with its Student t interval. One value alone has no interval, and neither have values that
// are all the same: a spread of 0 over a few seeds is no estimate of what other seeds would do, and
// t is not defined for it. low and high are then NaN.
struct Interval {
  double mean = 0, low = 0, high = 0;
  size_t n = 0;
  bool same = false;  // of several values, up to rounding
  [[nodiscard]] bool known() const { return n >= 2 && !same; }
  // Zero is outside: with a difference, the two sides differ at this confidence.
  [[nodiscard]] bool excludes_zero() const { return known() && (low > 0 || high < 0); }
};

// mean ± t(confidence, n − 1)·s/√n, s the sample standard deviation. `values` must not be empty.
Interval t_interval(const std::vector<double>& values, double confidence = 0.95);

// "2.1761 (2.1702–2.1820)"; without an interval "2.1761 (one run)", "2.1761 (the same in all 3)".
std::string text(const Interval& interval, int digits);

// {"n", "value"?, and with an interval "low", "high", "confidence", "interval"; "same": true where
// all values are}.
nlohmann::json to_json(const Interval& interval);

double median(std::vector<double> values);  // NaN when empty

}  // namespace dex::cli
