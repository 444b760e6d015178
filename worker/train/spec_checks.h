#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "worker/train/failure.h"

// Private to this room: checks of single values of a spec. Each throws Failure
// invalid_hyperparameter with the field, the value and what would be right.
namespace dex::train::detail {

// Exactly, in as few digits as that takes: "0.01" and "1e-09".
inline std::string shown(double value) {
  if (std::isnan(value)) return "NaN";
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

inline double in_range(double value, double low, double high, const char* field) {
  if (!(value >= low && value <= high)) {
    throw bad_spec(
        field, "must be between " + shown(low) + " and " + shown(high) + ", got " + shown(value));
  }
  return value;
}

inline double positive(double value, const char* field) {
  if (!(value > 0) || !std::isfinite(value))
    throw bad_spec(field, "must be a number > 0, got " + shown(value));
  return value;
}

inline double finite(double value, const char* field) {
  if (!std::isfinite(value)) throw bad_spec(field, "must be a finite number, got " + shown(value));
  return value;
}

[[noreturn]] inline void unknown_enum(const char* field, int value) {
  throw bad_spec(field, "unknown value " + std::to_string(value));
}

}  // namespace dex::train::detail
