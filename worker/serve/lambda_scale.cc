#include "worker/serve/lambda_scale.h"

#include <array>
#include <bit>
#include <cstdio>
#include <string>
#include <string_view>

#include "services/base/sha256.h"

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
  // The scale is the client's to choose, and its adapter's hash is no secret: a mixture that can be
  // solved for one would let it write into the base's cache, or into another tenant's.
  const auto bits = std::bit_cast<std::array<char, sizeof(double)>>(request.lambda_scale());
  base::Sha256 hash;
  hash.update(adapter->content_sha256);
  hash.update(std::string_view(bits.data(), bits.size()));
  return kv_key(hash.hex());
}

}  // namespace dex::serve
