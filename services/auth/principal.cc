#include "services/auth/principal.h"

#include <algorithm>

namespace dex::auth {

std::string_view name(Scope scope) {
  switch (scope) {
    case Scope::kFilesRead:
      return "files:read";
    case Scope::kFilesWrite:
      return "files:write";
    case Scope::kJobsRead:
      return "jobs:read";
    case Scope::kJobsWrite:
      return "jobs:write";
    case Scope::kAdaptersRead:
      return "adapters:read";
    case Scope::kAdaptersWrite:
      return "adapters:write";
    case Scope::kAdaptersServe:
      return "adapters:serve";
    case Scope::kInfer:
      return "infer";
    case Scope::kEvalRead:
      return "eval:read";
    case Scope::kEvalWrite:
      return "eval:write";
    case Scope::kMetricsRead:
      return "metrics:read";
    case Scope::kAdmin:
      return "admin";
  }
  return "unknown";
}

std::optional<Scope> find_scope(std::string_view wanted) {
  for (uint32_t n = 0; n <= static_cast<uint32_t>(Scope::kAdmin); ++n) {
    if (name(static_cast<Scope>(n)) == wanted) return static_cast<Scope>(n);
  }
  return std::nullopt;
}

std::string scope_words(uint32_t scopes) {
  std::string words;
  for (uint32_t n = 0; n <= static_cast<uint32_t>(Scope::kAdmin); ++n) {
    const auto scope = static_cast<Scope>(n);
    if ((scopes & bit(scope)) != 0) words.append(words.empty() ? "" : " ").append(name(scope));
  }
  return words;
}

uint32_t scopes_in(std::string_view words) {
  uint32_t scopes = 0;
  while (!words.empty()) {
    const auto end = std::min(words.find(' '), words.size());
    if (const auto scope = find_scope(words.substr(0, end))) scopes |= bit(*scope);
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return scopes;
}

bool Principal::has(Scope scope) const {
  return (scopes_ & bit(scope)) != 0;
}

bool is_operator(const Principal& principal) {
  return principal.has(Scope::kAdmin) && principal.tenant() == kOperatorTenant;
}

base::Status require_operator(const Principal& principal) {
  DEX_RETURN_IF_ERROR(require(principal, Scope::kAdmin));
  if (is_operator(principal)) return {};
  return base::Status(base::Code::kPermissionDenied, "SCOPE_MISSING",
                      "this call is the operator's: it needs the scope 'admin' in the tenant '" +
                          std::string(kOperatorTenant) + "', not in '" + principal.tenant() + "'")
      .with_metadata("scope", std::string(name(Scope::kAdmin)));
}

base::Status require(const Principal& principal, Scope scope) {
  if (principal.has(scope)) return {};
  const std::string wanted(name(scope));
  return base::Status(base::Code::kPermissionDenied, "SCOPE_MISSING",
                      "this call needs the scope '" + wanted + "', which the API key lacks")
      .with_metadata("scope", wanted);
}

}  // namespace dex::auth
