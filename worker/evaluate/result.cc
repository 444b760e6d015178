#include "worker/evaluate/result.h"

namespace dex::evaluate {

const std::string* find(const Dims& dims, const std::string& name) {
  for (const auto& [key, value] : dims) {
    if (key == name) return &value;
  }
  return nullptr;
}

const char* name(IntervalKind kind) {
  switch (kind) {
    case IntervalKind::kWilson:
      return "WILSON";
    case IntervalKind::kBootstrap:
      return "BOOTSTRAP";
    case IntervalKind::kNone:
      return "NONE";
  }
  return "";
}

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kBetter:
      return "BETTER";
    case Verdict::kWorse:
      return "WORSE";
    case Verdict::kNoDifference:
      return "NO_DIFFERENCE";
    case Verdict::kDifferent:
      return "DIFFERENT";
  }
  return "";
}

}  // namespace dex::evaluate
