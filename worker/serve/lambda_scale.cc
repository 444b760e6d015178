#include "worker/serve/lambda_scale.h"

#include <bit>
#include <cstdio>
#include <string>

namespace dex::serve {

base::Status check_lambda_scale(const Request& request, const ServingAdapter* adapter) {
  if (!request.dex_lambda_scale || (adapter != nullptr && adapter->has_lambda)) return {};
  char value[32];
  std::snprintf(value, sizeof value, "%g", *request.dex_lambda_scale);
  const std::string what =
      std::string("has no effect, got ") + value + ": it scales the λ of a DEX branch, and " +
      (adapter == nullptr
           ? "the base model answers"
           : "adapter " + adapter->id + " of method " + adapter->method + " has none");
  return base::invalid_argument("UNUSED_FIELD", "dex_lambda_scale " + what)
      .with_violation("dex_lambda_scale", what);
}

bool needs_branch_apart(const Request& request, const ServingAdapter* adapter) {
  return adapter != nullptr && adapter->is_folded() && request.lambda_scale() != 1;
}

uint64_t cache_key(const Request& request, const ServingAdapter* adapter) {
  if (adapter == nullptr) return 0;
  if (request.lambda_scale() == 1) return adapter->key;
  // SplitMix64's finaliser is one to one, so two scales of an adapter never meet.
  uint64_t x = std::bit_cast<uint64_t>(request.lambda_scale()) + 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return adapter->key ^ x ^ (x >> 31);
}

}  // namespace dex::serve
