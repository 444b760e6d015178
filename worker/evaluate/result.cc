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

}  // namespace dex::evaluate
