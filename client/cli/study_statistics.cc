#include "client/cli/study_statistics.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "client/cli/terminal.h"

namespace dex::cli {

Interval t_interval(const std::vector<double>& values, double confidence) {
  Interval out;
  out.n = values.size();
  const auto n = static_cast<double>(values.size());
  out.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  out.low = out.high = std::numeric_limits<double>::quiet_NaN();
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  constexpr double kRounding = 1e-9;  // differences of figures are rounded, far below this
  out.same =
      out.n >= 2 && *most - *least <= kRounding * std::max(std::abs(*least), std::abs(*most));
  if (!out.known()) return out;
  double squares = 0;
  for (const double value : values) squares += (value - out.mean) * (value - out.mean);
  const boost::math::students_t t(n - 1);
  const double half =
      boost::math::quantile(t, 0.5 + confidence / 2) * std::sqrt(squares / (n - 1) / n);
  out.low = out.mean - half;
  out.high = out.mean + half;
  return out;
}

std::string text(const Interval& interval, int digits) {
  const std::string mean = fixed(interval.mean, digits);
  if (interval.same) return mean + " (the same in all " + std::to_string(interval.n) + ")";
  if (!interval.known()) return mean + " (one run)";
  // A range that may begin with a minus is written with "to".
  const char* between = interval.low < 0 ? " to " : "–";
  return mean + " (" + fixed(interval.low, digits) + between + fixed(interval.high, digits) + ")";
}

nlohmann::json to_json(const Interval& interval) {
  nlohmann::json out = {{"n", interval.n}};
  if (interval.n > 0) out["value"] = interval.mean;
  if (interval.same) out["same"] = true;
  if (interval.known()) {
    out["low"] = interval.low;
    out["high"] = interval.high;
    out["confidence"] = 0.95;
    out["interval"] = "STUDENT_T";
  }
  return out;
}

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace dex::cli
